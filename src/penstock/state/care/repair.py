"""Repair: from what is wrong with a checkpoint to the steps that make it sound.

The least that helps is done. A segment that compaction made is replaced by its inputs; else the
query goes back to the newest epoch that is whole, together with Spark's log, and runs the epochs
after it again on the same input. Law: after a repair the checkpoint is sound, and the query goes on
to exactly the output that it would have had; where that is impossible, nothing is touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from penstock.base.words import pluralise
from penstock.files.place import Place, place_of
from penstock.plan.buckets import BucketSet
from penstock.plan.epoch import SegmentRef
from penstock.plan.tails import state_folder
from penstock.state.care.findings import Finding
from penstock.state.care.repair_log import LogRepair
from penstock.state.care.repair_steps import RepairPlan, Step
from penstock.state.care.survey import Survey, epoch_of_name, survey
from penstock.state.care.verify import verify
from penstock.state.care.verify_log import checksum_of
from penstock.state.manifests import Manifest
from penstock.state.published import Marker, is_published, published_marker

_OUTPUTS = ("published", "late", "dead")
_SET_ASIDE = ("rows", "plan", "marker", "metadata", "commits", "crc", "record", "staged", "pin")
"""Kinds of files that are not needed, or are made again, once the damaged one is out of the way."""


def plan_repair(checkpoint: str | Path, spark_folder: str | Path | None = None) -> RepairPlan:
    """Return what a repair of a checkpoint would do; nothing is changed.

    Args:
        checkpoint: The checkpoint's path or URI.
        spark_folder: Where Spark keeps its part, if elsewhere.
    """
    found = verify(checkpoint, spark_folder)
    return _Planner(survey(checkpoint, spark_folder), found.findings).plan()


class _Planner:
    """Makes the plan for the findings of one verification."""

    def __init__(self, seen: Survey, findings: Sequence[Finding]) -> None:
        self.seen, self.findings = seen, findings
        self.bad = {item.path for item in findings}
        self.log = LogRepair(seen, self.bad)
        self.accepted: list[str] = []
        self.notes: list[str] = []

    def plan(self) -> RepairPlan:
        steps: list[Step] = []
        impossible: list[str] = []
        back_to = self.seen.newest
        if self.findings:
            replaced = (self._replace_damaged() if self._only_segments_are_bad else None) or {}
            if replaced:
                steps += self._rewrite(replaced)
            else:
                back_to, impossible = self._target()
                steps += self._go_back(back_to)
            steps += self._others(back_to, rewritten=set(replaced))
        found: dict[str, Step] = {}
        for step in steps:  # a file is set aside once, and may then be written anew
            found.setdefault(f"{step.action} {step.path}", step)
        return RepairPlan(
            checkpoint=str(self.seen.home),
            newest=self.seen.newest,
            back_to=back_to,
            steps=() if impossible else tuple(found.values()),
            notes=tuple(dict.fromkeys(self.notes)),
            impossible=tuple(impossible),
            accepted=() if impossible else tuple(dict.fromkeys(self.accepted)),
        )

    # Which epoch is whole

    @property
    def _only_segments_are_bad(self) -> bool:
        """Whether the newest epoch would be whole but for some of its segments."""
        last = self.seen.last
        return (
            last is not None and bool(self._bad_segments(last)) and self._is_whole_but_state(last)
        )

    def _bad_segments(self, manifest: Manifest) -> list[tuple[str, str]]:
        return [pair for pair in manifest.segment_names() if self._segment(*pair) in self.bad]

    def _segment(self, operator: str, name: str) -> str:
        return self.seen.relative(self.seen.root / "state" / state_folder(operator) / name)

    def _is_whole(self, epoch: int) -> bool:
        manifest = self.seen.manifests.get(epoch)
        if manifest is None:
            return False
        return not self._bad_segments(manifest) and self._is_whole_but_state(manifest)

    def _is_whole_but_state(self, manifest: Manifest) -> bool:
        epoch = manifest.epoch
        if self.seen.relative(self.seen.log.place(epoch)) in self.bad:
            return False
        newest = epoch == self.seen.newest
        if newest and any(item.epoch == epoch and self._is_lost(item) for item in self.findings):
            return False
        return self.log.supports(manifest)

    def _is_lost(self, item: Finding) -> bool:
        """Whether an output of the newest epoch has to be made again."""
        waits = self.seen.last is not None and not self.seen.was_published(self.seen.last)
        return item.kind in _OUTPUTS or (item.kind == "staged" and waits)

    def _target(self) -> tuple[int, list[str]]:
        for epoch in reversed(self.seen.epochs):
            if self._is_whole(epoch):
                return epoch, self.log.obstacles(epoch)
        if not self.seen.epochs:
            return -1, self.log.obstacles(-1)
        first, last = self.seen.epochs[0], self.seen.epochs[-1]
        needed = [f.path for f in self.findings if f.kind in ("manifest", "segment", "sources")]
        why = f"of the epochs that are kept, {first} to {last}, none is whole without "
        why += ", ".join((needed or sorted(self.bad))[:3])
        return last, [f"{why}; restore the checkpoint from a copy, or begin a new one"]

    # A damaged segment that was merged from others

    def _replace_damaged(self) -> dict[int, Manifest] | None:
        """Return the manifests with inputs in place of damaged segments; None if that fails."""
        found: dict[int, Manifest] = {}
        for epoch in self.seen.epochs:
            manifest = self.seen.manifests.get(epoch)
            if manifest is None:
                continue
            if self._bad_segments(manifest):
                better = self._with_inputs(manifest)
                if better is None and epoch == self.seen.newest:
                    return None
                if better is not None:
                    found[epoch] = better
            if epoch - 1 in found:
                following = found.get(epoch, manifest)
                found[epoch] = replace(following, previous=found[epoch - 1].digest)
        return found

    def _with_inputs(self, manifest: Manifest) -> Manifest | None:
        segments, told = {}, []
        for operator, refs in manifest.segments.items():
            live: dict[str, SegmentRef] = {}
            for ref in refs:
                parts = self._resolve(operator, ref)
                if parts is None:
                    return None
                if self._segment(operator, ref.name) in self.bad:
                    told.append(f"{operator}/{ref.name} replaced by its {len(parts)} inputs")
                for part in parts:
                    same = live.get(part.name)
                    buckets = {*part.buckets} | ({*same.buckets} if same else set())
                    live[part.name] = replace(part, live=BucketSet.of(buckets).ranges)
            segments[operator] = tuple(live.values())
        return replace(manifest, segments=segments, repaired="; ".join(told))

    def _resolve(self, operator: str, ref: SegmentRef) -> list[SegmentRef] | None:
        """Return whole segments that hold the same rows, for the same buckets; None if gone."""
        if self._segment(operator, ref.name) not in self.bad:
            return [ref]
        made = epoch_of_name(ref.name)
        before = None if made is None else self.seen.manifests.get(made - 1)
        if before is None or not ref.merged:
            return None
        lineage = operator if operator in before.segments else state_folder(operator)
        known = {found.name: found for found in before.segments.get(lineage, ())}
        parts: list[SegmentRef] = []
        for name in ref.merged:
            if name not in known:
                return None
            live = (known[name].buckets & ref.buckets).ranges
            inner = self._resolve(operator, replace(known[name], live=live)) if live else []
            if inner is None:
                return None
            parts += inner
        return parts

    def _rewrite(self, manifests: dict[int, Manifest]) -> Iterator[Step]:
        newest = manifests[self.seen.newest]
        for epoch, manifest in manifests.items():
            path = str(self.seen.log.place(epoch))
            why = f"epoch {epoch} gets the inputs of a damaged segment in its place"
            yield Step(action="set aside", path=path, why=why)
            yield Step(action="write", path=path, why=why, data=manifest.to_bytes())
        if self.seen.last is not None and is_published(self.seen.root, self.seen.last):
            yield from self._mark(newest)
        self.notes.append(f"epoch {newest.epoch} stays the newest; nothing is run again")

    def _mark(self, manifest: Manifest) -> Iterator[Step]:
        marker = published_marker(self.seen.root, manifest.epoch)
        why, data = f"epoch {manifest.epoch} is published", Marker.of(manifest).to_bytes()
        if marker.exists():
            yield Step(action="set aside", path=str(marker), why="a new one takes its place")
        yield Step(action="write", path=str(marker), why=why, data=data)

    # Going back

    def _go_back(self, epoch: int) -> Iterator[Step]:
        keeps_input = self.log.keeps_next(epoch)
        yield from self._outputs_after(epoch + 1 if keeps_input else epoch)
        yield from self.log.steps(epoch)
        for later in [e for e in reversed(self.seen.epochs) if e > epoch]:
            why = f"the query goes back to epoch {epoch}"
            yield Step(action="set aside", path=str(self.seen.log.place(later)), why=why)
        yield from self._markers_after(epoch)
        newest = self._reached
        if epoch < newest:
            kept = self.seen.manifests.get(epoch)
            if kept is not None and self.seen.was_published(kept):
                yield from self._mark(kept)
            self.accepted.append(self.seen.relative(self.seen.log.place(epoch + 1)))
            self._tell(epoch, newest)

    @property
    def _reached(self) -> int:
        """The last epoch that was committed, with or without a manifest now."""
        told = [f.epoch for f in self.findings if f.kind == "manifest" and f.epoch is not None]
        return max([self.seen.newest, *told])

    def _tell(self, epoch: int, newest: int) -> None:
        self.notes += [
            f"the query goes back from epoch {newest} to epoch {epoch} and runs again from "
            f"epoch {epoch + 1}",
            f"functions given to foreach_batch get the epochs after {epoch} again, and so do "
            "memory and console sinks",
            f"the input of these epochs must still be there: files that arrived after epoch {epoch}"
            " are read again",
        ]

    def _outputs_after(self, epoch: int) -> Iterator[Step]:
        for target in self.seen.targets():
            for found, folder in self.seen.epochs_of(target).items():
                if found > epoch:
                    yield Step(action="set aside", path=str(folder), why="the epoch is run again")

    def _markers_after(self, epoch: int) -> Iterator[Step]:
        folder = self.seen.root / "published"
        for entry in folder.list():
            found = epoch_of_name(entry.name)
            if found is not None and found > epoch:
                path = str(folder / entry.name)
                yield Step(action="set aside", path=path, why="the epoch is run again")

    # Files on which no epoch depends

    def _others(self, back_to: int, *, rewritten: set[int]) -> Iterator[Step]:
        for item in self.findings:
            if item.kind in _OUTPUTS:
                yield from self._output(item, back_to)
            elif item.kind == "manifest":
                yield from self._history(item, back_to)
            elif item.kind == "segment":
                yield from self._old_segment(item, back_to, rewritten=rewritten)
            elif item.kind in _SET_ASIDE:
                yield from self._aside(item, item.wrong)
                self.accepted += [item.path] if item.kind == "pin" else []
            elif not self._vanishes_with_the_log(item):
                yield from self._aside(item, item.wrong)

    def _vanishes_with_the_log(self, item: Finding) -> bool:
        return not self._place(item).exists()

    def _place(self, item: Finding) -> Place:
        return self._absolute(item.path)

    def _absolute(self, path: str) -> Place:
        return place_of(path) if path.startswith("/") or "://" in path else self.seen.home / path

    def _aside(self, item: Finding, why: str) -> Iterator[Step]:
        place = self._place(item)
        if place.exists():
            yield Step(action="set aside", path=str(place), why=why)
        if item.kind in ("commits", "metadata", "offsets", "sources"):
            beside = checksum_of(place)
            if beside.exists():
                yield Step(action="set aside", path=str(beside), why="its file is set aside")

    def _output(self, item: Finding, back_to: int) -> Iterator[Step]:
        if item.epoch is not None and item.epoch > back_to:
            whole = self.seen.epoch_with(self._place(item), item.epoch)
            yield Step(action="set aside", path=str(whole), why="the epoch is run again")
            return
        yield from self._aside(item, item.wrong)
        self.accepted.append(item.path)
        rows = self._rows_of(item)
        lost = "an unknown number of rows" if rows is None else pluralise(rows, "row")
        self.notes.append(f"{item.path}: {lost} lost; the epoch cannot be run again")

    def _rows_of(self, item: Finding) -> int | None:
        manifest = self.seen.manifests.get(-1 if item.epoch is None else item.epoch)
        hashes = [s for s in manifest.staged if s.sha256[:16] in item.path] if manifest else []
        return hashes[0].rows if hashes else None

    def _history(self, item: Finding, back_to: int) -> Iterator[Step]:
        if item.epoch is None or item.epoch > back_to:
            return
        yield from self._aside(item, item.wrong)
        self.accepted.append(item.path)
        self.notes.append(f"the state of epoch {item.epoch} can no longer be read")

    def _old_segment(self, item: Finding, back_to: int, *, rewritten: set[int]) -> Iterator[Step]:
        yield from self._aside(item, item.wrong)
        for epoch in self._naming.get(item.path, ()):
            if epoch <= back_to and epoch not in rewritten:
                path = self.seen.relative(self.seen.log.place(epoch))
                why = "it names a damaged segment"
                yield Step(action="set aside", path=str(self._absolute(path)), why=why)
                self.accepted.append(path)
                self.notes.append(f"the state of epoch {epoch} can no longer be read")

    @cached_property
    def _naming(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for epoch, manifest in self.seen.manifests.items():
            for pair in manifest.segment_names():
                found.setdefault(self._segment(*pair), []).append(epoch)
        return found
