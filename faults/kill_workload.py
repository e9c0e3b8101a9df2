"""What the kill campaigns run: made-up files with late rows, a query, and what must come of it.

Law: the right answer is computed twice and never by the run under test: by one Polars batch over
the raw files, and by a run that nobody disturbed.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import polars as pl

import penstock as ps
from penstock.base.config import Config
from penstock.compiler import compile_query
from penstock.driver.outputs import read_side_output
from penstock.files.place import place_of
from penstock.query.stream import Sinks
from penstock.sinks.publish import read_published
from penstock.state.manifests import ManifestLog
from penstock.testing.faults.kills import Step, stepping
from penstock.testing.runner import LocalRun

SCHEMA = {"k": pl.String(), "x": pl.Int64(), "ts": pl.Datetime("us")}
DELAY = 3
SIZE, ADVANCE = 60, 20
FILE_SECONDS = 10
KEYS = 20
_FIRST = datetime(2026, 1, 1)
_MODIFIED = 1_700_000_000
_SORTED = ("k", "window_end")
_LATE_EVERY = 37


def write_files(folder: Path, files: int, *, rows: int = 120, seed: int = 0) -> None:
    """Write the input: event time goes on with a little disorder, and some rows are far too late.

    Modification times ascend, so Spark takes the files in this order.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(seed)
    for number in range(files):
        made = [_row(rng, number, i, rows) for i in range(rows)]
        path = folder / f"{number:05d}.parquet"
        pl.DataFrame(made, schema=SCHEMA, orient="row").write_parquet(path)
        os.utime(path, (_MODIFIED + number, _MODIFIED + number))


def _row(rng: random.Random, file: int, i: int, rows: int) -> tuple[str, int, datetime]:
    second = FILE_SECONDS * (file + i / rows) + rng.uniform(-1, 1)
    if (file * rows + i) % _LATE_EVERY == 0:
        second -= rng.uniform(20, 200)
    key = f"k{rng.randrange(KEYS):02d}"
    return key, rng.randrange(1_000_000), _FIRST + timedelta(seconds=1000 + second)


def build_query(calls: Path, out: Path, *, ordered: bool) -> Sinks:
    """Return the query: sums per key in sliding windows, one file an epoch."""
    stream = ps.read_parquet(
        calls, time="ts", schema=SCHEMA, delay=f"{DELAY} seconds", max_files_per_epoch=1
    )
    sums = stream.apply(pass_through, schema=SCHEMA).aggregate(
        by="k",
        window=ps.sliding(f"{SIZE} seconds", every=f"{ADVANCE} seconds"),
        n="count(*)",
        total="sum(x)",
        most="max(x)",
    )
    return sums.write_parquet(str(out), ordered=ordered)


def pass_through(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows as they are; in a worker that has an order to die, take note of it."""
    from faults.kill_child import obey  # workers only; the campaign itself runs no tasks

    obey()
    return frame


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run has left behind.

    Attributes:
        rows: The sink's rows in the order in which a reader finds them, with their epoch.
        late: The late rows.
        totals: What became of all rows, and the number of the last epoch.
    """

    rows: pl.DataFrame
    late: pl.DataFrame
    totals: Mapping[str, int] = field(default_factory=dict)


def batch_outcome(calls: Path) -> Outcome:
    """Return the right answer, from one batch over the raw files; it knows no epochs."""
    paths = sorted(calls.glob("*.parquet"))
    raw = pl.concat([pl.read_parquet(path) for path in paths])
    reached = pl.col("ts").cum_max().shift(1)
    late = (pl.col("ts") < reached - timedelta(seconds=DELAY)).fill_null(False)
    marked = raw.with_columns(late=late)
    seconds = pl.col("ts").dt.epoch("us") // 1_000_000
    first = (seconds - SIZE) // ADVANCE + 1
    rows = (
        marked.filter(~pl.col("late"))
        .with_columns(w=pl.int_ranges(first, seconds // ADVANCE + 1))
        .explode("w")
        .group_by("k", "w")
        .agg(n=pl.len().cast(pl.Int64), total=pl.col("x").sum(), most=pl.col("x").max())
        .with_columns(window_start=pl.from_epoch(pl.col("w") * ADVANCE).cast(pl.Datetime("us")))
        .with_columns(window_end=pl.col("window_start") + timedelta(seconds=SIZE))
        .select("k", "window_start", "window_end", "n", "total", "most")
        .sort(_SORTED)
    )
    gone = marked.filter("late").drop("late")
    totals = {"read": raw.height, "late": gone.height, "processed": raw.height - gone.height}
    return Outcome(rows=rows, late=gone, totals=totals)


def run_outcome(checkpoint: Path, out: Path) -> Outcome:
    """Return what a run has left behind.

    Raises:
        CheckpointError: A file is damaged.
    """
    root = place_of(checkpoint) / "penstock"
    found = [
        frame.with_columns(epoch=pl.lit(epoch, dtype=pl.Int64))
        for epoch, frame in read_published(place_of(out)).items()
    ]
    late = read_side_output(root, "late").get(0, pl.DataFrame(schema=SCHEMA))
    last = ManifestLog(root).newest()
    totals = {} if last is None else dict(last.totals) | {"epoch": last.epoch}
    return Outcome(
        rows=pl.concat(found) if found else pl.DataFrame(),
        late=late.select(list(SCHEMA)),
        totals=totals,
    )


def files_per_epoch(checkpoint: Path) -> list[int]:
    """Return how many files Spark gave to each epoch.

    It is one, but for a kill between two of Spark's own writes: its list of files has then one that
    its offsets have not, and the next epoch gets that one and another.
    """
    offsets = checkpoint / "spark" / "offsets"
    reached = [-1]
    for epoch in sorted(int(path.name) for path in offsets.glob("[0-9]*")):
        lines = (offsets / str(epoch)).read_text().splitlines()
        reached.append(json.loads(lines[2])["logOffset"])
    return [after - before for before, after in pairwise(reached)]


def run_in_process(
    calls: Path,
    folder: Path,
    *,
    ordered: bool,
    cut: Sequence[int] = (),
    hook: Callable[[Step], None] = lambda step: None,
) -> None:
    """Run the query without Spark and without kills.

    Args:
        calls: The input.
        folder: Where checkpoint and output go.
        ordered: Whether the sink is ordered.
        cut: How many files each epoch takes; one unless given.
        hook: Is called at every step on the disk.
    """
    query = compile_query(build_query(calls, folder / "out", ordered=ordered).sinks)
    paths = sorted(str(path) for path in calls.glob("*.parquet"))
    with stepping(hook):
        run = LocalRun(query, folder / "checkpoint", Config(retainEpochs=2, retainSeconds=0))
        first = 0
        for files in cut or [1] * len(paths):
            run.files({query.sources[0][0]: paths[first : first + files]})
            first += files
        run.finish()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How a run differs from what is right; all zero and silent if it does not."""

    lost: int = 0
    duplicated: int = 0
    differing: int = 0
    remarks: tuple[str, ...] = ()

    @property
    def right(self) -> bool:
        """Whether nothing differs."""
        return not (self.lost or self.duplicated or self.differing)

    def noting(self, remarks: Sequence[str]) -> Verdict:
        """Return the verdict with more that differs."""
        more = self.differing + len(remarks)
        return replace(self, differing=more, remarks=(*self.remarks, *remarks))


def judge(found: Outcome, batch: Outcome, clean: Outcome | None, *, ordered: bool) -> Verdict:
    """Compare a run with the batch and with the clean run."""
    rows = found.rows.drop("epoch", strict=False)
    lost, duplicated, remarks = compared(rows, batch.rows, "rows")
    late_lost, late_twice, late_remarks = compared(found.late, batch.late, "late rows")
    other = [
        f"{name} is {found.totals.get(name)}, not {value}"
        for name, value in ({} if clean is None else clean.totals).items() | batch.totals.items()
        if found.totals.get(name) != value
    ]
    if clean is not None and _by_epoch(found, ordered) != _by_epoch(clean, ordered):
        other.append("the rows are in other epochs, or in another order, than in the clean run")
    return Verdict(
        lost=lost + late_lost,
        duplicated=duplicated + late_twice,
        differing=len(other),
        remarks=(*remarks, *late_remarks, *other),
    )


def compared(
    found: pl.DataFrame, right: pl.DataFrame, what: str
) -> tuple[int, int, tuple[str, ...]]:
    """Return how many rows are missing, how many too many, and a word on each."""
    if not found.width:
        found = right.clear()
    names = right.columns
    ours = found.select(names).group_by(names).len("ours")
    theirs = right.group_by(names).len("theirs")
    both = theirs.join(ours, on=names, how="full", coalesce=True, nulls_equal=True)
    odd = both.fill_null(0).with_columns(
        more=pl.col("ours").cast(pl.Int64) - pl.col("theirs").cast(pl.Int64)
    )
    missing, extra = odd.filter(pl.col("more") < 0), odd.filter(pl.col("more") > 0)
    told = [f"{what} missing: {row}" for row in missing.head(3).to_dicts()]
    told += [f"{what} too many: {row}" for row in extra.head(3).to_dicts()]
    return -int(missing["more"].sum()), int(extra["more"].sum()), tuple(told)


def _by_epoch(outcome: Outcome, ordered: bool) -> list[tuple[object, ...]]:
    rows = outcome.rows
    if rows.width and not ordered:
        rows = rows.sort("epoch", *_SORTED)
    return rows.rows()
