"""Changes of bucket maps, and the records of those that happened.

Law: a change takes effect at an epoch boundary, as a whole; if the epoch is not committed, it did
not happen.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.plan.buckets import BucketMap

PROTOCOLS = ("auto", "state", "window")
"""How a bucket's state comes to its new owner: it is read (``state``), or the old owner finishes
its windows while new ones start at the new owner (``window``); ``auto`` takes the cheaper one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A new bucket map for one subquery, and why.

    Attributes:
        subquery: The subquery.
        owners: Who owns each bucket from then on; also says how many instances there are.
        kind: ``rescale``, ``rebalance``, ``move``, or ``replace`` after the loss of an executor.
        cause: Who wants it: ``user``, a policy's name, ``resources``.
        reason: Why, as a clause that a person can read.
        protocol: One of `PROTOCOLS`.
        request: The id of the request that asked for it, if one came through the checkpoint.
    """

    subquery: int
    owners: BucketMap
    kind: str
    cause: str
    reason: str = ""
    protocol: str = "auto"
    request: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconfiguration:
    """The record of a change.

    Attributes:
        id: The epoch and a number, such as ``12.0``.
        epoch: The first epoch with the new map.
        at: When that epoch was committed, or the one that ended the move, in seconds since 1970.
        subquery: The subquery.
        name: The name of its head.
        kind: As in `Change`.
        cause: As in `Change`.
        protocol: ``state`` or ``window``; empty if nothing had to move.
        before: How many instances there were.
        after: How many there are.
        buckets: How many buckets have a new owner.
        bytes: How much state the new owners read.
        seconds: How long it took: the whole first epoch for ``state``; for ``window`` from the
            request until the old owners' last window closed.
        outcome: ``done``, ``moving``, or ``refused``; a record with the same id follows one that
            is ``moving``.
        sentence: All of it in one plain sentence.
        request: As in `Change`.
    """

    id: str
    epoch: int
    at: float
    subquery: int
    name: str
    kind: str
    cause: str
    protocol: str
    before: int
    after: int
    buckets: int
    bytes: int
    seconds: float
    outcome: str
    sentence: str
    request: str = ""


def newest(records: Iterable[Reconfiguration]) -> list[Reconfiguration]:
    """Return the last word on every change: of two with one id the one that is not ``moving``."""
    found: dict[str, Reconfiguration] = {}
    for record in records:
        known = found.get(record.id)
        if known is None or known.outcome == "moving":
            found[record.id] = record
    return sorted(found.values(), key=_place)


def _place(record: Reconfiguration) -> tuple[int, int, str]:
    number = record.id.rpartition(".")[2]
    return record.epoch, int(number) if number.isdigit() else -1, record.id
