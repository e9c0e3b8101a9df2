"""What a run has left, what it should have left, and how the two differ.

Law: an outcome is read with verification from the disk alone; two runs of one scenario up to the
same epoch have equal outcomes, and both equal what the reference evaluator and, for plain
aggregates, plain Polars make of the raw rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from penstock.base.hashing import BUCKET
from penstock.driver.outputs import read_side_output
from penstock.exchange.placement import placement_of
from penstock.files.place import FileSystem, LocalFiles, Place, place_of
from penstock.operators.kernel import UNTIL
from penstock.operators.kernels import kernel_of
from penstock.operators.stores.chunks import PANE
from penstock.operators.windows.sessions import SessionKernel
from penstock.plan.buckets import BucketSet
from penstock.plan.compiled import CompiledQuery
from penstock.plan.tails import state_folder
from penstock.query.nodes import Aggregate
from penstock.query.windows import TimeWindow
from penstock.sinks.owners import claims_folder
from penstock.sinks.registry import find_kind
from penstock.sinks.sink import LastingKind
from penstock.state.care.audit import audit
from penstock.state.manifests import Manifest, ManifestLog
from penstock.state.published import published_marker
from penstock.state.segments import read_segment
from penstock.testing.compare import difference
from penstock.testing.faults.machine import Machine, files_of_thread
from penstock.testing.faults.scenario import Scenario
from penstock.testing.faults.shapes import DELAY_SECONDS
from penstock.testing.reference import Reference, evaluate

Rows = list[dict[str, Any]]
Texts = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run has left, in a form in which equal runs are equal.

    Attributes:
        epoch: The newest epoch; -1 before the first.
        rows: The rows of each output by epoch: sinks, late rows by source, dead letters.
        facts: Counts, watermarks and positions.
        state: The rows of each stateful operator, each with its bucket.
    """

    epoch: int
    rows: Mapping[str, Mapping[int, Rows]]
    facts: Mapping[str, Any]
    state: Mapping[str, Texts]

    @property
    def written(self) -> int:
        """How many rows the sinks have got."""
        sinks = [epochs for name, epochs in self.rows.items() if name.startswith("sink")]
        return sum(len(rows) for epochs in sinks for rows in epochs.values())


@dataclass(slots=True, kw_only=True)
class Difference:
    """How what was found differs from what was expected."""

    lost: int = 0
    duplicated: int = 0
    differing: int = 0
    notes: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.lost or self.duplicated or self.differing)

    def add(self, note: str) -> None:
        """Count something that differs and is no row."""
        self.differing += 1
        self.notes.append(note)


def outcome_of(machine: Machine, files: FileSystem) -> Outcome:
    """Return what a machine's disk holds; every file is verified.

    Raises:
        CheckpointError: Something is damaged or missing.
    """
    with files_of_thread(files):
        root = place_of(machine.checkpoint) / "penstock"
        last = ManifestLog(root).newest()
        query = machine.scenario.query(machine.folder)
        if last is None:
            return Outcome(epoch=-1, rows={}, facts={}, state={})
        return Outcome(
            epoch=last.epoch,
            rows=_outputs(machine, query, root),
            facts=_facts(last),
            state={
                query.operator_name(n): state_rows(root, query, last, n) for n in query.stateful
            },
        )


def _facts(last: Manifest) -> dict[str, Any]:
    return {
        "final": last.final,
        "totals": dict(last.totals),
        "watermarks": dict(last.watermarks),
        "seen": dict(last.seen),
        "rows before": dict(last.rows_before),
        "heard at": dict(last.heard_at),
    }


def _outputs(machine: Machine, query: CompiledQuery, root: Place) -> dict[str, dict[int, Rows]]:
    found: dict[str, dict[int, Rows]] = {}
    for number, sink in query.sinks:
        kind = find_kind(sink.kind)
        if isinstance(kind, LastingKind):
            frames = kind.read(kind.name(sink))
            epochs = {epoch: frame.to_dicts() for epoch, frame in frames.items()}
        else:
            epochs = {e: rows for e, rows in machine.tables.get(number, {}).items() if rows}
        found[f"sink {number}"] = epochs
    for side in ("late", "dead"):
        for number, frame in read_side_output(root, side).items():
            by_epoch = frame.partition_by("epoch", as_dict=True)
            found[f"{side} {number}"] = {
                int(e[0]): [_without_text(row) for row in f.to_dicts()] for e, f in by_epoch.items()
            }
    return found


def _without_text(letter: dict[str, Any]) -> dict[str, Any]:
    """Return a dead letter without its row's text, which has the columns that its task had."""
    placed = letter.get("position") is not None
    return {name: value for name, value in letter.items() if name != "row" or not placed}


def state_rows(root: Place, query: CompiledQuery, last: Manifest, number: int) -> Texts:
    """Return an operator's state as sorted texts of rows, each with its bucket."""
    name, everything = query.operator_name(number), BucketSet(((0, query.buckets),))
    folder = root / "state" / name
    deltas: dict[int, list[pl.DataFrame]] = {}
    for kept in last.kept(name):
        delta = read_segment(folder, kept.ref, kept.buckets)
        if kept.before_us is not None:  # later rows of a tail are the new owner's, too
            node = query.nodes[number]
            assert isinstance(node, Aggregate)
            assert isinstance(node.window, TimeWindow)
            delta = delta.filter(pl.col(PANE) * node.window.pane_us < kept.before_us)
        deltas.setdefault(kept.mark, []).append(delta)
    if not deltas:
        return ()
    kernel = kernel_of(query, number)
    rows = pl.concat(
        kernel.compact(found, mark, whole=True).filter(pl.col(UNTIL) > mark)
        for mark, found in deltas.items()
    )
    if isinstance(kernel, SessionKernel):
        rows = kernel.join(rows)
    placement = placement_of(query.nodes[number], query.buckets, everything)
    placed = rows.with_columns(placement.bucket(rows).alias(BUCKET)).to_dicts()
    return tuple(sorted(f"{row.pop(BUCKET)}: {sorted(row.items())}" for row in placed))


def compare(expected: Outcome, found: Outcome) -> Difference:
    """Return how an outcome differs from the one that was expected."""
    odd = Difference()
    if found.epoch != expected.epoch:
        odd.add(f"epoch {found.epoch} instead of {expected.epoch}")
    for name in sorted({*expected.rows, *found.rows}):
        _compare_rows(odd, name, expected.rows.get(name, {}), found.rows.get(name, {}))
    for name in sorted({*expected.facts, *found.facts}):
        if expected.facts.get(name) != found.facts.get(name):
            odd.add(f"{name}: {found.facts.get(name)} instead of {expected.facts.get(name)}")
    for name in sorted({*expected.state, *found.state}):
        if expected.state.get(name) != found.state.get(name):
            odd.add(f"state of {name}: {found.state.get(name)} not {expected.state.get(name)}")
    return odd


def _compare_rows(
    odd: Difference, name: str, expected: Mapping[int, Rows], found: Mapping[int, Rows]
) -> None:
    """Count rows that are missing, rows that are there again, and rows that nobody expected."""
    known = {repr(row) for rows in expected.values() for row in rows}
    for epoch in sorted({*expected, *found}):
        wanted = Counter(map(repr, expected.get(epoch, ())))
        given = Counter(map(repr, found.get(epoch, ())))
        lost, extra = wanted - given, given - wanted
        again = sum(count for row, count in extra.items() if row in known)
        odd.lost += lost.total()
        odd.duplicated += again
        odd.differing += extra.total() - again
        if lost or extra:
            odd.notes.append(f"{name}, epoch {epoch}: missing {dict(lost)}, extra {dict(extra)}")


def check_truth(scenario: Scenario, machine: Machine, outcome: Outcome) -> Difference:
    """Return how an outcome differs from what the raw rows say, and whether it is empty."""
    odd = Difference()
    if not outcome.written or not outcome.facts.get("totals", {}).get("late"):
        odd.add("the run left nothing to compare")
    if scenario.shape.idle:
        _check_counts(odd, outcome, scenario)
        return odd
    final = scenario.is_final(outcome.epoch)
    inputs = scenario.until(outcome.epoch)
    reference = evaluate(scenario.sinks(machine.folder).sinks, inputs, final)
    _check_reference(odd, scenario.query(machine.folder), outcome, reference)
    if scenario.shape.plain is not None:
        expected = plain_aggregate(scenario, inputs, final)
        (rows,) = [epochs for name, epochs in outcome.rows.items() if name.startswith("sink")]
        text = difference([row for e in sorted(rows) for row in rows[e]], expected)
        if text:
            odd.add(f"plain Polars: {text}")
    return odd


def _check_reference(
    odd: Difference, query: CompiledQuery, outcome: Outcome, reference: Reference
) -> None:
    for number, sink in query.sinks:
        epochs = outcome.rows[f"sink {number}"]
        rows = [row for epoch in sorted(epochs) for row in epochs[epoch]]
        text = difference(rows, reference.rows[number], ordered=sink.ordered)
        if text:
            odd.add(f"reference, sink {number}: {text}")
    totals = outcome.facts["totals"]
    found = {name: totals[name] for name in ("read", "late", "refused", "refusedResults")}
    expected = {
        "read": reference.read,
        "late": reference.late_count,
        "refused": reference.refused,
        "refusedResults": reference.refused_results,
    }
    if found != expected:
        odd.add(f"reference, counts: {found} instead of {expected}")


def _check_counts(odd: Difference, outcome: Outcome, scenario: Scenario) -> None:
    """Check a run in which the clock matters: every row is accounted for, once."""
    read = sum(len(rows) for rows in scenario.until(outcome.epoch).values())
    totals = outcome.facts["totals"]
    late = sum(len(r) for n, e in outcome.rows.items() if n.startswith("late") for r in e.values())
    (sink,) = [epochs for name, epochs in outcome.rows.items() if name.startswith("sink")]
    counted = sum(row["n"] for rows in sink.values() for row in rows)
    if (totals["read"], totals["late"]) != (read, late):
        odd.add(f"{totals} with {read} rows read and {late} late rows kept")
    if scenario.is_final(outcome.epoch) and counted != totals["processed"]:
        odd.add(f"{counted} rows in all windows, {totals['processed']} processed")


def plain_aggregate(
    scenario: Scenario, inputs: Mapping[int, Sequence[Mapping[str, Any]]], final: bool
) -> Rows:
    """Return the results of a plain aggregate by a Polars group-by over the raw rows."""
    window = scenario.shape.plain
    assert window is not None
    sources = [_in_time(rows) for rows in inputs.values()]
    marks = [frame["time"].max() for frame in sources]
    rows = pl.concat(sources).with_columns(x=pl.col("s").cast(pl.Int64, strict=False))
    rows = rows.filter(pl.col("x") >= 0)
    first = pl.col("time") - pl.col("time") % window.every_us
    steps = -(-window.size_us // window.every_us)
    starts = pl.concat_list([first - i * window.every_us for i in range(steps)])
    ends = pl.col("start") + window.size_us
    lowest = min(mark for mark in marks if isinstance(mark, int)) - DELAY_SECONDS * 1_000_000
    return (
        rows.with_columns(start=starts)
        .explode("start")
        .filter(ends > pl.col("time"), pl.lit(final) | (ends <= lowest))
        .group_by("k", "start")
        .agg(n=pl.len().cast(pl.Int64), total=pl.col("x").sum(), most=pl.col("x").max())
        .with_columns(
            window_start=pl.col("start").cast(pl.Datetime("us")),
            window_end=ends.cast(pl.Datetime("us")),
        )
        .drop("start")
        .to_dicts()
    )


def _in_time(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Return the rows of one source that have a time and are not late."""
    frame = pl.DataFrame([dict(row) for row in rows]).filter(pl.col("ts").is_not_null())
    time = pl.col("ts").cast(pl.Datetime("us")).to_physical()
    frame = frame.with_columns(time=time).with_columns(highest=pl.col("time").cum_max().shift(1))
    late = pl.col("time") < pl.col("highest") - DELAY_SECONDS * 1_000_000
    return frame.filter(~late.fill_null(False)).drop("highest")


def missing_history(machine: Machine, files: FileSystem) -> list[str]:
    """Return what is wrong with the epochs whose state must still be readable."""
    with files_of_thread(files):
        root = place_of(machine.checkpoint) / "penstock"
        log, wrong = ManifestLog(root), []
        newest = max(log.epochs(), default=-1)
        for epoch in range(max(0, newest - machine.scenario.retain_epochs), newest + 1):
            manifest = log.read(epoch)
            if manifest is None:
                wrong.append(f"the manifest of epoch {epoch} is gone, though {newest} is newest")
                continue
            for operator, refs in manifest.segments.items():
                for ref in refs:
                    place = root / "state" / state_folder(operator) / ref.name
                    place.read_checked(size=ref.bytes, digest=ref.sha256)
        return wrong


def unnamed_files(machine: Machine, files: LocalFiles) -> list[str]:
    """Return the files below a machine's folder that nothing names: garbage.

    Named are the manifests and what they name, the marker of the newest epoch, pins, claims, all
    that is published, and the event log, which bounds itself.
    """
    with files_of_thread(files):
        root = place_of(machine.checkpoint) / "penstock"
        log = ManifestLog(root)
        kept = [m for epoch in log.epochs() if (m := log.read(epoch)) is not None]
        if not kept:
            return []
        query = machine.scenario.query(machine.folder)
        kinds = [(find_kind(sink.kind), sink) for _, sink in query.sinks]
        targets = [kind.name(sink) for kind, sink in kinds if isinstance(kind, LastingKind)]
        named = {str(log.place(m.epoch)) for m in kept}
        named |= {f"{root}/state/{op}/{name}" for m in kept for op, name in m.segment_names()}
        named |= {staged.path for staged in kept[-1].staged}
        named |= {str(published_marker(root, kept[-1].epoch))}
        claims = [str(claims_folder(place_of(target))) for target in targets]
        open_folders = tuple(f"{p}/" for p in (f"{root}/pinned", *targets, *claims))
        sides = (f"{root}/late/", f"{root}/dead/")
        found = all_files(Place(files, machine.folder))
        events = f"{root}/events/"
        found = [p for p in found if not p.startswith(events) or "/." in p.removeprefix(events)]
        return [p for p in found if p not in named and not p.startswith((*open_folders, *sides))]


def parted(checkpoint: str | Path, *, taken: bool = False) -> list[str]:
    """Return where an audit of a checkpoint finds that something parts, as texts.

    Args:
        checkpoint: The checkpoint.
        taken: Whether readers have taken published epochs; else none may be missing.
    """
    found = audit(checkpoint)
    wrong = found.partings if taken else (*found.partings, *found.missing)
    return [f"audit: {parting.where}: {parting.text}" for parting in wrong]


def all_files(folder: Place) -> list[str]:
    """Return the paths of all files below a folder."""
    found = []
    for entry in folder.list():
        if entry.folder:
            found += all_files(folder / entry.name)
        else:
            found.append(str(folder / entry.name))
    return found
