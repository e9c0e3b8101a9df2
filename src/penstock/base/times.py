"""The ends of event time: where every watermark begins, and where it ends."""

from __future__ import annotations

FINISHED = 1 << 62
"""The watermark of a stream that has ended."""
NOT_STARTED = -(1 << 62)
"""The watermark of a stream of which nothing has been seen."""
