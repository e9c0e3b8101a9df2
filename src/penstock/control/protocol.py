"""The choice between state recreation and window recreation for buckets that move.

By state recreation the new owner reads the buckets' state in the first epoch. By window recreation
nothing is read: rows of the overlap are worked on twice, and the old owner has a second state to
look after until its last window closes (StreamCloud, section V-A). Law: the choice is a function of
what is known of the buckets; it changes what a move costs, never what the query gives.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.query.windows import TimeWindow

READ_BYTES_PER_SECOND = 100e6
"""How fast state is read and put together again, and rows are added: an assumption."""
TAIL_SECONDS = 0.01
"""What a tail costs in an epoch, beside its rows: an assumption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A protocol, and why, as a clause that a person can read."""

    protocol: str
    reason: str


def choose(
    *,
    moved_bytes: float,
    window: TimeWindow | None,
    rest_epochs: float | None,
    stays: bool = True,
    moving: bool = False,
) -> Choice:
    """Return the cheaper protocol for buckets that move together.

    Args:
        moved_bytes: How much state they have.
        window: The operator's windows; None if it has none by time.
        rest_epochs: In how many epochs the last window of their rows will have closed, if known.
        stays: Whether the old owners stay.
        moving: Whether some of the buckets are on their way already.

    >>> from penstock.query.windows import sliding, tumbling
    >>> choose(moved_bytes=50e6, window=tumbling("1 minute"), rest_epochs=6).protocol
    'window'
    >>> choose(moved_bytes=50e6, window=sliding("1 hour", every="1 minute"), rest_epochs=6)
    Choice(protocol='state', reason='reading 50.0 MB takes 0.50 s, finishing old windows 0.55 s')
    >>> choose(moved_bytes=50e6, window=None, rest_epochs=None).reason
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
    return _cheaper(moved_bytes, window, rest_epochs)


def _cheaper(moved_bytes: float, window: TimeWindow, rest_epochs: float) -> Choice:
    overlap = 1 - window.every_us / window.size_us
    by_state = moved_bytes / READ_BYTES_PER_SECOND
    by_window = by_state * overlap + max(1.0, rest_epochs) * TAIL_SECONDS
    read = f"reading {moved_bytes / 1e6:.1f} MB takes {by_state:.2f} s"
    reason = f"{read}, finishing old windows {by_window:.2f} s"
    return Choice(protocol="window" if by_window < by_state else "state", reason=reason)
