"""The layout of a running query: how many instances each subquery has, and who owns which bucket.

Changes are asked for at any time and from any thread, and take effect together at the next epoch
boundary. Law: the layout in force is the one of the last manifest, or the one that the epoch that
runs now will commit.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from penstock.base.errors import ConfigError
from penstock.compiler.fuse import fuse_units
from penstock.compiler.size import size_subclusters
from penstock.driver.steering.switch import Applied, Weights, switch_owners
from penstock.plan.buckets import BucketMap
from penstock.plan.changes import Abilities, Cause, Change, ChangeKind, MoveProtocol
from penstock.plan.compiled import CompiledQuery
from penstock.plan.tails import Tail
from penstock.state.manifests import Manifest

ABILITIES = Abilities()
"""What a layout can carry out beside bucket maps: nothing yet."""


class Layout:
    """Sizes and bucket maps of a query."""

    def __init__(
        self,
        query: CompiledQuery,
        last: Manifest | None,
        *,
        keep_sizes: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Take up the layout of the last manifest.

        Args:
            query: The compiled query, with the sizes that were asked for.
            last: The newest manifest, if there is one.
            keep_sizes: Whether the sizes are those of the manifest, whatever the query has.
            clock: Tells the time.
        """
        self._lock, self._clock = threading.Lock(), clock
        known = _known_maps(query, last)
        if keep_sizes:
            sizes = {s.id: s.instances for s in query.subqueries}
            sizes |= {number: owners.instances for number, owners in known.items()}
            query = fuse_units(size_subclusters(query, sizes))
        self.query = query
        self.maps: dict[int, BucketMap] = {
            s.id: self._fit(s.id, known.get(s.id), s.instances) for s in query.subqueries
        }
        self._before = dict(self.maps)
        self._wanted: list[tuple[Change, float]] = []
        self.applied: tuple[Applied, ...] = ()
        """What took effect with the epoch that runs now."""
        self.tails: tuple[Tail, ...] = last.tails if last else ()
        """The windows that old owners finish, with those of the epoch that runs now."""

    def _fit(self, subquery: int, owners: BucketMap | None, instances: int) -> BucketMap:
        even = self.query.owners(subquery, instances)
        if owners is None or len(owners.owners) != len(even.owners):
            return even
        if owners.instances == instances:
            return owners
        return owners.resize(instances) if self.query.is_movable(subquery) else even

    def rescale(
        self,
        subquery: int,
        instances: int,
        *,
        cause: Cause,
        reason: str = "",
        protocol: MoveProtocol = "auto",
        loads: Sequence[float] = (),
        request: str = "",
    ) -> Change:
        """Ask for another number of instances from the next epoch on."""
        self._check(subquery)
        size_subclusters(self.query, {subquery: instances})  # refuses a number that cannot be
        with self._lock:
            now = self._next(subquery)
            fits = 1 if self.query.is_fixed(subquery) else instances
            movable = self.query.is_movable(subquery)
            after = now.resize(fits, loads) if movable else self.query.owners(subquery, fits)
            change = Change(
                subquery=subquery,
                owners=now if fits == now.instances else after,
                kind="rescale",
                cause=cause,
                reason=reason,
                protocol=protocol,
                request=request,
            )
            self._check_protocol(change, now)
            self._add(change)
        return change

    def move(
        self,
        subquery: int,
        moves: Mapping[int, int],
        *,
        cause: Cause,
        reason: str = "",
        protocol: MoveProtocol = "auto",
        kind: ChangeKind = "move",
        request: str = "",
    ) -> Change:
        """Ask for other owners of some buckets from the next epoch on."""
        self._check(subquery)
        if not self.query.is_movable(subquery):
            allowed = [s.id for s in self.query.subqueries if self.query.is_movable(s.id)]
            raise ConfigError(
                name="subquery",
                value=subquery,
                allowed=f"one whose rows go by bucket: {allowed}",
            )
        with self._lock:
            now = self._next(subquery)
            for bucket, owner in moves.items():
                if not 0 <= bucket < len(now.owners) or not 0 <= owner < now.instances:
                    raise ConfigError(
                        name="move",
                        value=f"bucket {bucket} to instance {owner}",
                        allowed=(
                            f"buckets 0 to {len(now.owners) - 1}, instances 0 to "
                            f"{now.instances - 1}"
                        ),
                    )
            change = Change(
                subquery=subquery,
                owners=now.with_owners(moves),
                kind=kind,
                cause=cause,
                reason=reason,
                protocol=protocol,
                request=request,
            )
            self._check_protocol(change, now)
            self._add(change)
        return change

    def propose(self, change: Change) -> bool:
        """Ask for a change unless another one is wanted for the subquery: that one came first.

        A policy knows nothing of what was asked for since the epoch it looked at.
        """
        self._check(change.subquery)
        with self._lock:
            if any(wanted.subquery == change.subquery for wanted, _ in self._wanted):
                return False
            self._add(change)
            return True

    def _add(self, change: Change) -> None:
        self._wanted.append((change, self._clock()))

    def _check_protocol(self, change: Change, now: BucketMap) -> None:
        """Refuse window recreation where no old owner could finish windows."""
        if change.protocol != "window":
            return
        if self.query.window_of(change.subquery) is None:
            name = self.query.subquery_name(change.subquery)
            raise ConfigError(
                name="protocol",
                value="window",
                allowed=f"auto, state ({name} is no aggregate over windows of time)",
            )
        size = change.owners.instances
        leaving = {now.owners[bucket] for bucket in now.find_moved(change.owners)} - set(
            range(size)
        )
        if leaving:
            raise ConfigError(
                name="protocol",
                value="window",
                allowed=(
                    f"auto, state (instances {', '.join(map(str, sorted(leaving)))} go, "
                    "so they cannot finish their windows)"
                ),
            )

    def _check(self, subquery: int) -> None:
        known = [s.id for s in self.query.subqueries]
        if subquery not in known:
            raise ConfigError(name="subquery", value=subquery, allowed=", ".join(map(str, known)))

    def _next(self, subquery: int) -> BucketMap:
        """Return the map that a subquery will have once all that was asked for has happened."""
        wanted = [change.owners for change, _ in self._wanted if change.subquery == subquery]
        return wanted[-1] if wanted else self.maps[subquery]

    def instances_wanted(self) -> int:
        """Return the most instances of a subquery, once all that was asked for has happened."""
        with self._lock:
            return max(self._next(s.id).instances for s in self.query.subqueries)

    def upcoming(self, subquery: int) -> BucketMap:
        """Return the map that a subquery has from the next epoch on, as far as is known."""
        with self._lock:
            return self._next(subquery)

    def moving(self) -> dict[int, tuple[int, ...]]:
        """Return the buckets of each subquery that are on their way: old windows are still open."""
        numbers = {self.query.subquery_name(s.id): s.id for s in self.query.subqueries}
        found: dict[int, set[int]] = {}
        for tail in self.tails:
            if tail.operator in numbers:
                found.setdefault(numbers[tail.operator], set()).update(tail.buckets)
        return {number: tuple(sorted(buckets)) for number, buckets in found.items()}

    def begin_epoch(self, epoch: int, last: Manifest | None, weights: Weights) -> None:
        """Let what was asked for take effect, with the epoch that begins now.

        If the epoch before was not committed, its changes take effect with this one, anew.

        Args:
            epoch: The epoch.
            last: The manifest before it, if there is one.
            weights: What the choice of a protocol goes by.
        """
        with self._lock:
            wanted, self._wanted = self._wanted, []
            for change, at in wanted:
                applied = Applied(change=change, before=self.maps[change.subquery], asked_at=at)
                self.applied = (*self.applied, applied)
                self.maps[change.subquery] = change.owners
            sizes = {number: owners.instances for number, owners in self.maps.items()}
            if sizes != {s.id: s.instances for s in self.query.subqueries}:
                self.query = fuse_units(size_subclusters(self.query, sizes))
            self.applied, self.tails = switch_owners(
                self.query,
                epoch,
                last or Manifest(epoch=-1),
                self._before,
                self.maps,
                self.applied,
                weights,
            )

    def committed(self, tails: tuple[Tail, ...] = ()) -> tuple[Applied, ...]:
        """Return what took effect with the epoch that was just committed.

        Args:
            tails: The tails that go on after it.
        """
        applied, self.applied = self.applied, ()
        self._before, self.tails = dict(self.maps), tails
        return applied


def _known_maps(query: CompiledQuery, last: Manifest | None) -> dict[int, BucketMap]:
    """Return the maps of a manifest by the numbers that the subqueries have now."""
    if last is None:
        return {}
    names = {query.subquery_name(s.id): s.id for s in query.subqueries}
    return {
        names[name]: BucketMap.of_runs(runs, max(owner for owner, _ in runs) + 1)
        for name, runs in last.owners.items()
        if name in names
    }
