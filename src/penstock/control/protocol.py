"""The choice between state recreation and window recreation for buckets that move.

By state recreation the new owner reads the buckets' state in the first epoch. By window recreation
nothing is read: rows of the overlap are worked on twice, and the old owner has a second state to
look after until its last window closes (StreamCloud, section V-A). Law: the choice is a function of
what is known of the buckets; it changes what a move costs, never what the query gives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock.query.windows import TimeWindow

TAIL_SECONDS = 0.01
"""What a tail costs in an epoch, beside its rows: an assumption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A protocol, and why, as a clause that a person can read."""

    protocol: Literal["state", "window"]
    reason: str


def choose(
    *,
    moved_bytes: float,
    window: TimeWindow | None,
    rest_epochs: float | None,
    read_bytes_per_second: float,
    stays: bool = True,
    moving: bool = False,
) -> Choice:
    """Return the cheaper protocol for buckets that move together.

    Args:
        moved_bytes: How much state they have.
        window: The operator's windows; None if it has none by time.
        rest_epochs: In how many epochs the last window of their rows will have closed, if known.
        read_bytes_per_second: How fast state is read, see `penstock.control.read_speed`; rows are
            taken to be added as fast.
        stays: Whether the old owners stay.
        moving: Whether some of the buckets are on their way already.

    >>> from penstock.query.windows import sliding, tumbling
    >>> known = {"moved_bytes": 50e6, "rest_epochs": 6, "read_bytes_per_second": 100e6}
    >>> choose(window=tumbling("1 minute"), **known).protocol
    'window'
    >>> choose(window=sliding("1 hour", every="1 minute"), **known)
    Choice(protocol='state', reason='reading 50.0 MB takes 0.50 s, finishing old windows 0.55 s')
    >>> choose(window=None, **known).reason
    'only windows by time can be finished by their old owner'
    """
    if not moved_bytes:
        return Choice(protocol="state", reason="there is no state to read")
    if window is None:
        return Choice(
            protocol="state", reason="only windows by time can be finished by their old owner"
        )
    if not stays:
        return Choice(protocol="state", reason="an old owner goes")
    if moving:
        return Choice(protocol="state", reason="some of the buckets are on their way already")
    if rest_epochs is None:
        return Choice(protocol="state", reason="it is not known yet how fast windows close")
    return _cheaper(moved_bytes, window, rest_epochs, read_bytes_per_second)


def _cheaper(
    moved_bytes: float, window: TimeWindow, rest_epochs: float, read_bytes_per_second: float
) -> Choice:
    overlap = 1 - window.every_us / window.size_us
    by_state = moved_bytes / read_bytes_per_second
    by_window = by_state * overlap + max(1.0, rest_epochs) * TAIL_SECONDS
    read = f"reading {moved_bytes / 1e6:.1f} MB takes {by_state:.2f} s"
    reason = f"{read}, finishing old windows {by_window:.2f} s"
    return Choice(protocol="window" if by_window < by_state else "state", reason=reason)
