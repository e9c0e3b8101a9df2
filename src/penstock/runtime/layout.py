"""The layout of a running query: how many instances each subquery has, and who owns which bucket.

Changes are asked for at any time and from any thread, and take effect together at the next epoch
boundary. Law: the layout in force is the one of the last manifest, or the one that the epoch that
runs now will commit.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.compiler.fuse import fuse_units
from penstock.compiler.size import size_subclusters
from penstock.errors import ConfigError
from penstock.plan.buckets import BucketMap
from penstock.plan.changes import PROTOCOLS, Change
from penstock.plan.compiled import CompiledQuery
from penstock.state.manifests import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """A change that took effect, and the map before it."""

    change: Change
    before: BucketMap


class Layout:
    """Sizes and bucket maps of a query."""

    def __init__(
        self, query: CompiledQuery, last: Manifest | None, *, keep_sizes: bool = False
    ) -> None:
        """Take up the layout of the last manifest.

        Args:
            query: The compiled query, with the sizes that were asked for.
            last: The newest manifest, if there is one.
            keep_sizes: Whether the sizes are those of the manifest, whatever the query has.
        """
        self._lock = threading.Lock()
        known = _known_maps(query, last)
        if keep_sizes:
            sizes = {s.id: s.instances for s in query.subqueries}
            sizes |= {number: owners.instances for number, owners in known.items()}
            query = fuse_units(size_subclusters(query, sizes))
        self.query = query
        self.maps: dict[int, BucketMap] = {
            s.id: self._fitted(s.id, known.get(s.id), s.instances) for s in query.subqueries
        }
        self._wanted: list[Change] = []
        self.applied: tuple[Applied, ...] = ()
        """What took effect with the epoch that runs now."""

    def _fitted(self, subquery: int, owners: BucketMap | None, instances: int) -> BucketMap:
        even = _even(self.query, subquery, instances)
        if owners is None or len(owners.owners) != len(even.owners):
            return even
        if owners.instances == instances:
            return owners
        return owners.resized(instances) if self.movable(subquery) else even

    def movable(self, subquery: int) -> bool:
        """Return whether single buckets of a subquery can move: rows go to it by bucket."""
        keyed = any(e.keys is not None for e in self.query.edges_into(subquery))
        return keyed and self.query.grid_of(subquery) is None

    def fixed(self, subquery: int) -> bool:
        """Return whether a subquery always has one instance."""
        head = self.query.subqueries[subquery].head
        return head is not None and self.query.nodes[head].alone

    def rescale(
        self,
        subquery: int,
        instances: int,
        *,
        cause: str,
        reason: str = "",
        protocol: str = "auto",
        loads: Sequence[float] = (),
    ) -> Change:
        """Ask for another number of instances from the next epoch on."""
        self._check(subquery)
        size_subclusters(self.query, {subquery: instances})  # refuses a number that cannot be
        with self._lock:
            now = self._next(subquery)
            fits = 1 if self.fixed(subquery) else instances
            movable = self.movable(subquery)
            after = now.resized(fits, loads) if movable else _even(self.query, subquery, fits)
            change = Change(
                subquery=subquery,
                owners=now if fits == now.instances else after,
                kind="rescale",
                cause=cause,
                reason=reason,
                protocol=protocol,
            )
            self._add(change)
        return change

    def move(
        self,
        subquery: int,
        moves: Mapping[int, int],
        *,
        cause: str,
        reason: str = "",
        protocol: str = "auto",
        kind: str = "move",
    ) -> Change:
        """Ask for other owners of some buckets from the next epoch on."""
        self._check(subquery)
        if not self.movable(subquery):
            allowed = [s.id for s in self.query.subqueries if self.movable(s.id)]
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
            )
            self._add(change)
        return change

    def request(self, change: Change) -> None:
        """Ask for a change from the next epoch on; the last one for a subquery stands."""
        self._check(change.subquery)
        with self._lock:
            self._add(change)

    def _add(self, change: Change) -> None:
        if change.protocol not in PROTOCOLS:
            raise ConfigError(name="protocol", value=change.protocol, allowed=", ".join(PROTOCOLS))
        self._wanted.append(change)

    def _check(self, subquery: int) -> None:
        known = [s.id for s in self.query.subqueries]
        if subquery not in known:
            raise ConfigError(name="subquery", value=subquery, allowed=", ".join(map(str, known)))

    def _next(self, subquery: int) -> BucketMap:
        """Return the map that a subquery will have once all that was asked for has happened."""
        wanted = [change.owners for change in self._wanted if change.subquery == subquery]
        return wanted[-1] if wanted else self.maps[subquery]

    def begin_epoch(self) -> None:
        """Let what was asked for take effect, with the epoch that begins now."""
        with self._lock:
            wanted, self._wanted = self._wanted, []
            for change in wanted:
                applied = Applied(change=change, before=self.maps[change.subquery])
                self.applied = (*self.applied, applied)
                self.maps[change.subquery] = change.owners
            sizes = {number: owners.instances for number, owners in self.maps.items()}
            if sizes != {s.id: s.instances for s in self.query.subqueries}:
                self.query = fuse_units(size_subclusters(self.query, sizes))

    def committed(self) -> tuple[Applied, ...]:
        """Return what took effect with the epoch that was just committed."""
        applied, self.applied = self.applied, ()
        return applied


def _even(query: CompiledQuery, subquery: int, instances: int) -> BucketMap:
    sized = replace(query.subqueries[subquery], instances=instances)
    others = [sized if s.id == subquery else s for s in query.subqueries]
    return replace(query, subqueries=tuple(others)).owners(subquery)


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
