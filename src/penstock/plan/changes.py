"""Changes of how a subquery runs, and the records of those that happened.

Laws: a change takes effect at an epoch boundary, as a whole; if the epoch is not committed, it did
not happen. A change that makes no sense in itself cannot be made.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite
from typing import Literal, NewType, get_args

from penstock.base.errors import ConfigError
from penstock.plan.buckets import BucketMap

MoveProtocol = Literal["auto", "state", "window"]
"""How a bucket's state comes to its new owner: it is read (``state``), or the old owner finishes
its windows while new ones start at the new owner (``window``); ``auto`` takes the cheaper one."""
PROTOCOLS: tuple[MoveProtocol, ...] = get_args(MoveProtocol)
UsedProtocol = Literal["", "state", "window"]
"""How state came to its new owner; empty if there was none."""
ChangeKind = Literal["rescale", "rebalance", "move"]
RecordKind = Literal["rescale", "rebalance", "move", "request"]
"""What was changed; ``request`` for what was refused before it became a change."""
Outcome = Literal["done", "moving", "refused"]
Cause = NewType("Cause", str)
"""Who wants a change: `USER`, or a policy by its name."""
USER = Cause("user")
Part = Literal["weights", "cores", "quotas"]
"""What a change may give the instances of a subquery, beside their buckets."""
PARTS: tuple[Part, ...] = get_args(Part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What one subquery is to have from the next epoch on, and why.

    Attributes:
        subquery: The subquery.
        owners: Who owns each bucket from then on, which also says how many instances there are;
            the map in force if buckets are to stay where they are.
        kind: What it does to the buckets.
        cause: Who wants it.
        reason: Why, as a clause that a person can read.
        protocol: How state comes to new owners.
        request: The id of the request that asked for it, if one came through the checkpoint.
        weights: Which share of the rows each instance gets, where rows go to any instance; empty
            to leave it as it is, like the next two.
        cores: How many cores each instance may use.
        quotas: How many seconds of predicted work each instance may do in an epoch.

    >>> Change(
    ...     subquery=1, owners=BucketMap.even(4, 2), kind="move", cause=USER, quotas=(0.5,)
    ... )
    Traceback (most recent call last):
    ...
    penstock.base.errors.ConfigError: quotas=(0.5,) is not allowed; allowed: one for each of the \
2 instances, a number of 0 or more
    """

    subquery: int
    owners: BucketMap
    kind: ChangeKind
    cause: Cause
    reason: str = ""
    protocol: MoveProtocol = "auto"
    request: str = ""
    weights: tuple[float, ...] = ()
    cores: tuple[float, ...] = ()
    quotas: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        read_protocol(self.protocol)
        each = f"one for each of the {self.instances} instances"
        for part in PARTS:
            given: tuple[float, ...] = getattr(self, part)
            right = all(isfinite(one) and one >= 0 for one in given)
            if given and (len(given) != self.instances or not right):
                raise ConfigError(name=part, value=given, allowed=f"{each}, a number of 0 or more")
        if self.weights and not any(self.weights):
            raise ConfigError(name="weights", value=self.weights, allowed=f"{each}, one positive")
        if not all(self.cores):
            raise ConfigError(name="cores", value=self.cores, allowed=f"{each}, all positive")

    @property
    def instances(self) -> int:
        """How many instances there are from then on."""
        return self.owners.instances

    @property
    def parts(self) -> tuple[Part, ...]:
        """What it gives the instances, beside their buckets."""
        return tuple(part for part in PARTS if getattr(self, part))


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """Which parts of a change the runtime can carry out, beside the bucket map.

    >>> from dataclasses import replace
    >>> change = Change(subquery=1, owners=BucketMap.even(4, 2), kind="move", cause=USER)
    >>> Abilities(cores=True).find_lacking(replace(change, cores=(1.0, 2.0), quotas=(1.0, 1.0)))
    ('quotas',)
    """

    weights: bool = False
    cores: bool = False
    quotas: bool = False

    def find_lacking(self, change: Change) -> tuple[Part, ...]:
        """Return the parts of a change that cannot be carried out."""
        return tuple(part for part in change.parts if not getattr(self, part))


def read_protocol(text: str) -> MoveProtocol:
    """Return the protocol that a text names.

    Raises:
        ConfigError: It names none.
    """
    if text not in PROTOCOLS:
        raise ConfigError(name="protocol", value=text, allowed=", ".join(PROTOCOLS))
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconfiguration:
    """The record of a change.

    Attributes:
        id: The epoch and a number, such as ``12.0``.
        epoch: The first epoch with the new map.
        at: When that epoch was committed, or the one that ended the move, in seconds since 1970.
        subquery: The subquery.
        name: The name of its head.
        kind: As in `Change`; or ``request``.
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
    kind: RecordKind
    cause: Cause
    protocol: UsedProtocol
    before: int
    after: int
    buckets: int
    bytes: int
    seconds: float
    outcome: Outcome
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
