"""Hidden columns: what rows carry beside the columns that a user sees."""

from __future__ import annotations

TIME, SOURCE, POSITION = "__time", "__src", "__pos"
ORDER = (TIME, SOURCE, POSITION)
"""Stream order: event time in microseconds, source number, position in the source."""
