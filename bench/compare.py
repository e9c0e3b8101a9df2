"""Compare the engines' outputs row by row.

The law this module keeps: no figure is shown for an output that differs. Only closed windows
count: those that end at or before the highest event time of the whole input.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import polars as pl
import polars.selectors as cs

from bench.workloads import Workload

RELATIVE = 1e-9
RESOLUTION_US = 1.0
"""A mean is kept as a Duration in whole microseconds; engines round or cut the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """An engine's output: its closed windows in order, and how many open ones it also wrote."""

    closed: pl.DataFrame
    open_rows: int


class OutputMismatchError(AssertionError):
    """Two engines gave different rows for the same question."""

    def __init__(self, workload: str, engine: str, reference: str, detail: str) -> None:
        super().__init__(workload, engine, reference, detail)
        self.workload, self.engine, self.reference = workload, engine, reference
        self.detail = detail

    def __str__(self) -> str:
        return (
            f"outputs differ; workload={self.workload!r}, engine={self.engine!r}, "
            f"reference={self.reference!r}; {self.detail}"
        )


def last_time(calls: Path) -> datetime:
    """Return the highest event time of the input."""
    highest: datetime = (
        pl.scan_parquet(calls / "*.parquet").select(pl.col("ts").max()).collect().item()
    )
    return highest


def read_output(folder: Path, load: Workload, last: datetime) -> Output:
    """Read an engine's files; of pairs, those whose later call is not after `last` are closed."""
    if load.kind != "means":
        return _read_pairs(folder, last)
    return _read_means(folder, load, last)


def _read_pairs(folder: Path, last: datetime) -> Output:
    """Read pairs; native's times have a zone, others' have none."""
    rows = pl.read_parquet(visible_files(folder), hive_partitioning=False).with_columns(
        cs.datetime().cast(pl.Datetime("us"))
    )
    closed = rows.filter(pl.col("ts_right") <= last) if "ts_right" in rows.columns else rows
    return Output(closed=closed, open_rows=rows.height - closed.height)


def _read_means(folder: Path, load: Workload, last: datetime) -> Output:
    """Read (key, window_end, calls, mean in microseconds), sorted."""
    rows = pl.scan_parquet(visible_files(folder), hive_partitioning=False).select(
        load.key,
        pl.col("window_end").cast(pl.Datetime("us")),
        pl.col("calls").cast(pl.Int64),
        pl.col("mean").cast(pl.Int64).cast(pl.Float64),
    )
    ordered = rows.sort(load.key, "window_end").collect()
    closed = ordered.filter(pl.col("window_end") <= last)
    return Output(closed=closed, open_rows=ordered.height - closed.height)


def check_equal(load: Workload, outputs: Mapping[str, Output]) -> None:
    """Compare every output with the first one.

    Raises:
        OutputMismatchError: with the rows that are in one only, or that have other values.
    """
    (reference, wanted), *others = outputs.items()
    for engine, got in others:
        detail = (
            difference(got.closed, wanted.closed, load.key)
            if load.kind == "means"
            else frame_difference(got.closed, wanted.closed)
        )
        if detail:
            raise OutputMismatchError(load.name, engine, reference, detail)


def difference(got: pl.DataFrame, wanted: pl.DataFrame, key: str) -> str:
    """Say in what way two sorted outputs differ, or return an empty text."""
    where = [key, "window_end"]
    if not got.select(where).equals(wanted.select(where)):
        extra = got.join(wanted, on=where, how="anti")
        missing = wanted.join(got, on=where, how="anti")
        return (
            f"{extra.height} windows too many and {missing.height} missing, or some twice; "
            f"too many: {extra.head(3).rows()!r}; missing: {missing.head(3).rows()!r}"
        )
    both = got.with_columns(wanted["calls"].alias("calls_"), wanted["mean"].alias("mean_"))
    gap = (pl.col("mean") - pl.col("mean_")).abs()
    allowed = pl.max_horizontal(pl.lit(RESOLUTION_US), RELATIVE * pl.col("mean_").abs())
    near = (gap <= allowed).fill_null(value=False)  # a mean that is missing is never near
    wrong = both.filter(pl.col("calls").ne_missing(pl.col("calls_")) | ~near)
    if wrong.is_empty():
        return ""
    sample = wrong.head(3).rows()
    return f"{wrong.height} windows have other values (the last two wanted): {sample!r}"


def frame_difference(got: pl.DataFrame, wanted: pl.DataFrame) -> str:
    """Say in what way two outputs of any columns differ as bags of rows, or return an empty text.

    Floats may differ by `RELATIVE`; all else must be equal. Columns may be in any order.
    """
    if set(got.columns) != set(wanted.columns):
        return f"columns differ; got={got.columns!r}, wanted={wanted.columns!r}"
    real = [name for name, dtype in wanted.schema.items() if dtype.is_float()]
    exact = [name for name in wanted.columns if name not in real]
    got, wanted = (frame.select(exact + real).sort(exact + real) for frame in (got, wanted))
    same = [wanted.schema[name] for name in exact]
    got = got.with_columns(pl.col(n).cast(t) for n, t in zip(exact, same, strict=True))
    if not got.select(exact).equals(wanted.select(exact)):
        extra = got.join(wanted, on=exact, how="anti", nulls_equal=True)
        missing = wanted.join(got, on=exact, how="anti", nulls_equal=True)
        return (
            f"{got.height} rows for {wanted.height}; too many: {extra.height}, for example "
            f"{extra.head(3).rows()!r}; missing: {missing.height}: {missing.head(3).rows()!r}"
        )
    for name in real:
        gap = (got[name] - wanted[name]).abs()
        odd = (gap > RELATIVE * wanted[name].abs().clip(1.0)).fill_null(value=False)
        odd |= got[name].is_null() != wanted[name].is_null()
        if odd.any():
            sample = got.filter(odd).head(3).rows(), wanted.filter(odd).head(3)[name].to_list()
            return f"{odd.sum()} values of {name!r} differ, for example (wanted last) {sample!r}"
    return ""


def visible_files(folder: Path) -> list[str]:
    """Return the Parquet files of an output; those in hidden folders are not part of it."""
    files = sorted(str(path) for path in folder.rglob("*.parquet") if _visible(path, folder))
    if not files:
        raise FileNotFoundError(f"no output in folder={str(folder)!r}")
    return files


def _visible(path: Path, folder: Path) -> bool:
    """Say whether no part of the path below the folder is hidden."""
    return not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
