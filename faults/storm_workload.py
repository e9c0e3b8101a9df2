"""What a rescale storm runs: endless input, a query of four stateful operators, the right answer.

Law: the right answer is computed twice and never by the run under test: by one Polars batch over
the raw files, and by a static run in this process, with one instance of everything.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl

import penstock as ps
from faults.kill_workload import Verdict, compared
from penstock.base.config import Config
from penstock.compiler import compile_query
from penstock.driver.outputs import read_side_output
from penstock.files.place import place_of
from penstock.query.stream import Sinks
from penstock.sinks.publish import read_published
from penstock.state.manifests import ManifestLog
from penstock.testing.runner import LocalRun

SCHEMA = {
    "k": pl.String(),
    "x": pl.Int64(),
    "side": pl.Int64(),
    "id": pl.Int64(),
    "ts": pl.Datetime("us"),
}
ROWS = 120
KEYS = 40
DELAY = 3
SIZE, ADVANCE = 60, 20
ONCE, NEAR = 30, 2
FILE_SECONDS = 10
_FIRST = datetime(2026, 1, 1, 1)
_MODIFIED = 1_700_000_000
_LATE_EVERY, _TWICE_EVERY = 37, 11
_PAIRS = ["k", "id", "id_2", "ts", "ts_2"]


def write_file(folder: Path, number: int, seed: int) -> None:
    """Write one file of the input, whole or not at all; it depends on its number and the seed.

    Event time goes on with a little disorder; some rows come twice, and some far too late.
    Modification times ascend, so Spark takes the files in this order.
    """
    rng = random.Random(f"{seed} {number}")
    rows = []
    for i in range(ROWS):
        rows += [_row(rng, number, i)] * (2 if (number * ROWS + i) % _TWICE_EVERY == 0 else 1)
    frame = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    hidden, path = folder / f".{number:06d}.tmp", folder / f"{number:06d}.parquet"
    frame.write_parquet(hidden)
    os.utime(hidden, (_MODIFIED + number, _MODIFIED + number))
    hidden.replace(path)


def _row(rng: random.Random, file: int, i: int) -> tuple[str, int, int, int, datetime]:
    number = file * ROWS + i
    second = FILE_SECONDS * (file + i / ROWS) + rng.uniform(-1, 1)
    if number % _LATE_EVERY == 0:
        second -= rng.uniform(20, 200)
    at = _FIRST + timedelta(microseconds=int(second * 1e6))
    return f"k{rng.randrange(KEYS):02d}", rng.randrange(1_000_000), rng.randrange(2), number, at


def build_query(calls: Path, out: Path) -> Sinks:
    """Return the query: sums per key in sliding windows, in order; and pairs of rows seen once."""
    stream = ps.read_parquet(
        calls, time="ts", schema=SCHEMA, delay=f"{DELAY} seconds", max_files_per_epoch=1
    )
    sums = stream.aggregate(
        by="k",
        window=ps.sliding(f"{SIZE} seconds", every=f"{ADVANCE} seconds"),
        n="count(*)",
        total="sum(x)",
        most="max(x)",
    )
    once = stream.dedup(by="id", within=f"{ONCE} seconds")
    left, right = once.filter("side = 0"), once.filter("side = 1")
    pairs = left.join(right, on="k", within=f"{NEAR} seconds", suffix="_2").select(*_PAIRS)
    return sums.write_parquet(out / "sums", ordered=True).also(pairs.write_parquet(out / "pairs"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a run has left behind: the rows of both sinks, the late rows, and the counts."""

    sums: pl.DataFrame
    pairs: pl.DataFrame
    late: pl.DataFrame
    totals: Mapping[str, int] = field(default_factory=dict)


def run_static(calls: Path, folder: Path) -> Found:
    """Run the query in this process, one file an epoch, one instance, nothing changed."""
    query = compile_query(build_query(calls, folder / "out").sinks)
    run = LocalRun(query, folder / "checkpoint", Config(fsync=False, retainEpochs=2))
    for path in sorted(calls.glob("*.parquet")):
        run.files({query.sources[0][0]: [str(path)]})
    run.finish()
    return read_found(folder)


def read_found(folder: Path) -> Found:
    """Return what a run has left in its folder.

    Raises:
        CheckpointError: A file is damaged.
    """
    root = place_of(folder / "checkpoint") / "penstock"
    late = read_side_output(root, "late").get(0, pl.DataFrame(schema=SCHEMA))
    last = ManifestLog(root).newest()
    return Found(
        sums=_published(folder / "out" / "sums"),
        pairs=_published(folder / "out" / "pairs"),
        late=late.select(list(SCHEMA)),
        totals={} if last is None else dict(last.totals),
    )


def _published(folder: Path) -> pl.DataFrame:
    found = read_published(place_of(folder))
    return pl.concat([found[epoch] for epoch in sorted(found)]) if found else pl.DataFrame()


def batch_found(calls: Path) -> Found:
    """Return the right answer, from one batch over the raw files."""
    paths = sorted(calls.glob("*.parquet"))
    raw = pl.concat([pl.read_parquet(path) for path in paths]).with_row_index("at")
    reached = pl.col("ts").cum_max().shift(1)
    marked = raw.with_columns(
        late=(pl.col("ts") < reached - timedelta(seconds=DELAY)).fill_null(False)
    )
    rows, gone = marked.filter(~pl.col("late")), marked.filter("late")
    return Found(
        sums=_sums(rows),
        pairs=_pairs(rows),
        late=gone.select(list(SCHEMA)),
        totals={"read": raw.height, "late": gone.height, "processed": rows.height, "refused": 0},
    )


def _sums(rows: pl.DataFrame) -> pl.DataFrame:
    seconds = pl.col("ts").dt.epoch("us") // 1_000_000
    windows = pl.int_ranges((seconds - SIZE) // ADVANCE + 1, seconds // ADVANCE + 1)
    start = pl.from_epoch(pl.col("w") * ADVANCE).cast(pl.Datetime("us"))
    return (
        rows.with_columns(w=windows)
        .explode("w")
        .group_by("k", "w")
        .agg(n=pl.len().cast(pl.Int64), total=pl.col("x").sum(), most=pl.col("x").max())
        .with_columns(window_start=start, window_end=start + timedelta(seconds=SIZE))
        .select("k", "window_start", "window_end", "n", "total", "most")
    )


def _pairs(rows: pl.DataFrame) -> pl.DataFrame:
    once = rows.sort("ts", "at").unique("id", keep="first", maintain_order=True)
    left = once.filter(pl.col("side") == 0).select("k", "id", "ts")
    right = once.filter(pl.col("side") == 1).select("k", "id", "ts")
    apart = (pl.col("ts") - pl.col("ts_2")).abs()
    return (
        left.join(right, on="k", suffix="_2").filter(apart < timedelta(seconds=NEAR)).select(_PAIRS)
    )


def judge(found: Found, static: Found, batch: Found) -> Verdict:
    """Compare a run with the static run and with the batch, row for row."""
    parts = []
    for name, right in (("static run", static), ("batch", batch)):
        for what in ("sums", "pairs", "late"):
            lost, twice, remarks = compared(
                getattr(found, what), getattr(right, what), f"{what} of the {name}"
            )
            parts.append(Verdict(lost=lost, duplicated=twice, remarks=remarks))
        parts.append(_counted(found.totals, right.totals, name))
    if not found.sums.equals(static.sums):
        parts.append(Verdict(differing=1, remarks=("the sums are in another order",)))
    return Verdict(
        lost=sum(part.lost for part in parts),
        duplicated=sum(part.duplicated for part in parts),
        differing=sum(part.differing for part in parts),
        remarks=tuple(remark for part in parts for remark in part.remarks),
    )


def _counted(found: Mapping[str, int], right: Mapping[str, int], name: str) -> Verdict:
    odd: Sequence[str] = [
        f"{what} is {found.get(what)}, not {value} as in the {name}"
        for what, value in right.items()
        if found.get(what) != value
    ]
    return Verdict(differing=len(odd), remarks=tuple(odd))
