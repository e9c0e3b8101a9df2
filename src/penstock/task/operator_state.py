"""The state of one operator on one instance, through one epoch: from segments to segments.

Law: the work grows with the rows that came and the results that left; the state as a whole is read
only when the cache has none of it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import polars as pl

from penstock.exchange.placement import Placement
from penstock.files.place import place_of
from penstock.operators.kernel import UNTIL, CatchesUp, Kernel, Unfolds
from penstock.operators.rowwise.blame import Refusal
from penstock.plan.buckets import BucketSet
from penstock.plan.epoch import EpochPlan, SegmentRef
from penstock.plan.tails import state_folder
from penstock.state import compaction
from penstock.state.cache import Key, cache_key
from penstock.state.segments import read_segment, write_segment
from penstock.task.measure import count_buckets
from penstock.task.worker import Worker

Ranges = tuple[tuple[int, int], ...]
_MANY = 64
"""With more segments than this some are merged even in an epoch that had to restore the state."""


class OperatorState:
    """An operator's buckets on one instance."""

    def __init__(
        self,
        *,
        plan: EpochPlan,
        operator: str,
        kernel: Kernel,
        placement: Placement,
        mark: int,
        worker: Worker,
    ) -> None:
        """Find the segments that hold the rows that this instance reads.

        Args:
            plan: The plan of the epoch.
            operator: The operator, or one of its lineages (`penstock.plan.tails`).
            kernel: What the operator does.
            placement: Which rows of its state are this share's.
            mark: The mark at which they stand.
            worker: What this process keeps from one task to the next.
        """
        self.plan, self.operator, self.kernel = plan, operator, kernel
        self.worker = worker
        self.placement = placement
        self.reads, self.writes = placement.reads, placement.writes
        folder = state_folder(operator)
        self.folder = place_of(plan.checkpoint, fsync=plan.fsync) / "state" / folder
        self.before = mark
        refs = plan.segments.get(operator, ())
        self.refs = [ref for ref in refs if ref.buckets & self.reads]
        self.watermark = self.before
        self.added: tuple[SegmentRef, ...] = ()
        self.dropped: dict[str, Ranges] = {}
        self.hit = True
        self.restored_bytes = 0
        self.restored_seconds = 0.0
        self.held_bytes = 0
        self.histograms: dict[str, dict[int, int]] = {}
        self.refusals: tuple[Refusal, ...] = ()

    def advance(self, arrived: Sequence[pl.DataFrame], watermark: int) -> pl.DataFrame:
        """Take the epoch's rows up to a watermark; return the results.

        If the watermark is the mark at which the share stands, rows are kept and nothing closes.
        """
        self.watermark = watermark
        state = self._load()
        with ThreadPoolExecutor(1) as writer:  # the disk works while the kernel does
            written = writer.submit(self._keep, self.kernel.delta(arrived))
            done = self.kernel.advance(state, arrived, watermark)
            written.result()
        self._keep(done.kept)
        self.refusals = done.refusals
        self._expire()
        self._compact()
        self.held_bytes = self.worker.cache.put(
            self._key(self.plan.writer, self.plan.epoch, self.watermark),
            done.state,
            self.refs,
            pieces=self.kernel.pieces(done.state),
            writer=self.plan.writer,
            epoch=self.plan.epoch,
        )
        return done.results

    def _load(self) -> Any:
        key = self._key(self.plan.last_writer, self.plan.epoch - 1, self.before)
        state = self.worker.cache.get(key)
        if state is None:
            state = self._reshape(key)
        if state is None:
            state = self._catch_up(key)
        if state is None:
            self.hit = not self.refs
            since = time.perf_counter()
            read = self.worker.frames
            deltas = [read_segment(self.folder, ref, self.reads, read) for ref in self.refs]
            state = self.kernel.restore(deltas, self.before)
            self._note_restored(self.refs, since)
        return state

    def _reshape(self, key: Key) -> Any | None:
        """Return the state cut from one of more buckets, or joined from several, if any."""
        if self.placement.shared or not isinstance(self.kernel, Unfolds):
            return None
        deltas = [
            delta for state in self.worker.cache.around(key) for delta in self.kernel.unfold(state)
        ]
        if not deltas:
            return None
        mine = list(self.reads)
        cut = [delta.filter(self.placement.bucket(delta).is_in(mine)) for delta in deltas]
        return self.kernel.restore(cut, self.before)

    def _catch_up(self, key: Key) -> Any | None:
        """Return the state from an older one of this process and what was added since, if any."""
        if self.placement.shared or not isinstance(self.kernel, CatchesUp):
            return None
        found = self.worker.cache.behind(key, self.refs, self.plan.writer)
        if found is None:
            return None
        state, lacking = found
        since = time.perf_counter()
        deltas = [read_segment(self.folder, ref, self.reads) for ref in lacking]
        state = self.kernel.catch_up(state, deltas, self.before)
        self._note_restored(lacking, since)
        return state

    def _note_restored(self, refs: Sequence[SegmentRef], since: float) -> None:
        """Take note of what was read from segments, and how long it took."""
        self.restored_bytes = sum(_bytes_of(ref, self.reads) for ref in refs)
        self.restored_seconds = time.perf_counter() - since if refs else 0.0

    def _key(self, writer: str, epoch: int, watermark: int) -> Key:
        """Return the name of the state after an epoch.

        What others write has names that are not known here. But a run that commits an epoch has run
        it on one input, and a task is a function of its input, so the run and the epoch will do.
        """
        cells = self.placement.cells.ranges
        by_run = f"{writer} {epoch} {cells}" if self.placement.shared else ""
        refs = () if by_run else self.refs
        where = f"{self.plan.checkpoint} {by_run}"
        return cache_key(where, self.operator, self.reads, watermark, refs)

    def _keep(self, delta: pl.DataFrame) -> None:
        if delta.height:
            delta = self.placement.select_written(delta.filter(pl.col(UNTIL) > self.watermark))
        if delta.height:
            self._write(delta)

    def _write(self, rows: pl.DataFrame, merged: Sequence[SegmentRef] = ()) -> None:
        bucket = self.placement.bucket(rows)
        ref = write_segment(
            self.folder, self.plan.epoch, rows, bucket=bucket, live=self.writes, merged=merged
        )
        self.histograms[ref.name] = count_buckets(rows, bucket)
        self.added = (*self.added, ref)
        self.refs.append(ref)

    def _expire(self) -> None:
        self._drop([ref for ref in self._write_segments() if ref.until <= self.watermark])

    def _write_segments(self) -> list[SegmentRef]:
        """Return the segments that have rows of buckets which this instance writes."""
        return [ref for ref in self.refs if ref.buckets & self.writes]

    def _drop(self, gone: Sequence[SegmentRef]) -> None:
        names = {ref.name for ref in gone}
        new = {ref.name for ref in self.added}
        self.dropped |= {
            r.name: (r.buckets & self.writes).ranges for r in gone if r.name not in new
        }
        self.added = tuple(ref for ref in self.added if ref.name not in names)
        self.refs = [ref for ref in self.refs if ref.name not in names]

    def _compact(self) -> None:
        new = {ref.name for ref in self.added}
        # What is merged has to be in the manifest before, so that a damaged result can be repaired.
        known = [ref for ref in self._write_segments() if ref.name not in new]
        chosen = compaction.choose(known)
        if not chosen or not (self.hit or len(known) > _MANY):  # a restore is work enough
            return
        last = max(ref.epoch for ref in chosen)
        whole = all(ref.oldest > last for ref in known if ref not in chosen)
        deltas = [read_segment(self.folder, ref, self.writes) for ref in chosen]
        merged = self.kernel.compact(deltas, self.watermark, whole)
        self._drop(chosen)
        if merged.height:
            self._write(merged, chosen)


def _bytes_of(ref: SegmentRef, buckets: BucketSet) -> int:
    """Return how much of a segment the rows of some buckets are, taking all to be alike."""
    live = sum(high - low for low, high in ref.live)
    wanted = sum(high - low for low, high in (ref.buckets & buckets).ranges)
    return ref.bytes * wanted // live if live else 0
