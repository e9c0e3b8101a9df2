"""Rows are refused for their own faults only: a defect of Penstock's ends the query by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import penstock as ps
from penstock.base.errors import TaskError
from penstock.compiler import compile_query
from penstock.operators.keyed import batch_process, process
from penstock.operators.rowwise.blame import foreign, refuse_failing
from penstock.operators.windows.aggregate import AggregateKernel
from penstock.operators.windows.window_values import WindowValues
from penstock.query.processes import Context, Row
from penstock.query.stream import Stream
from penstock.task import evaluate
from penstock.testing.runner import LocalRun

SCHEMA: dict[str, Any] = {"k": pl.String, "x": pl.String, "ts": pl.Datetime("us")}
DEFECTS = [
    KeyError("__pane"),
    AttributeError("open"),
    TypeError("int"),
    AssertionError("law"),
    IndexError("7"),
    pl.exceptions.ColumnNotFoundError("__pane"),
    pl.exceptions.SchemaError("int"),
    RuntimeError("lost"),
]
BY_VALUES = [
    pl.exceptions.ComputeError("bits"),
    pl.exceptions.InvalidOperationError("cast"),
    OverflowError("far"),
    ValueError("odd"),
]


class Counting(ps.Process):
    """Counts rows of a key."""

    state = {"n": pl.Int64}  # noqa: RUF012  # read only
    output = {"n": pl.Int64}  # noqa: RUF012

    def on_row(self, row: Row, context: Context) -> list[Row]:
        context.state = {"n": (context.state or {"n": 0})["n"] + 1}
        return [context.state]


class Totals(ps.BatchProcess):
    """Numbers of rows of keys."""

    state = {"n": pl.Int64}  # noqa: RUF012
    output = {"n": pl.Int64}  # noqa: RUF012

    def on_rows(self, rows: pl.DataFrame, state: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        results = rows.select("k", pl.lit(1).alias("n"), "__row")
        return results, results.group_by("k").agg(pl.col("n").sum())


def run(made: Callable[[Stream], Stream], folder: Path, xs: list[str]) -> dict[str, int]:
    """Run a query to its end; return its counts."""
    stream = ps.from_rows([], schema=SCHEMA, time="ts")
    local = LocalRun(compile_query(made(stream).write_memory().sinks), folder)
    rows = [{"k": "a", "x": x, "ts": ps.at("2024-01-01 00:00:00")} for x in xs]
    local.epoch({0: [pl.DataFrame(rows, schema=SCHEMA)]})
    local.finish()
    assert local.driver.last is not None
    return {**local.driver.last.totals, "rows": local.table().height}


def raising(error: BaseException) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


def mapped(stream: Stream) -> Stream:
    return stream.map(n="cast(x as bigint)")


def aggregated(stream: Stream) -> Stream:
    return stream.aggregate(by="k", window=ps.tumbling("1 minute"), n="count(*)")


def in_sessions(stream: Stream) -> Stream:
    return stream.aggregate(by="k", window=ps.session("1 minute"), n="count(*)")


PLACES: dict[str, tuple[Callable[[Stream], Stream], Any, str, str]] = {
    "map": (mapped, evaluate, "transform", "map"),
    "prepare": (aggregated, AggregateKernel, "prepare", "aggregate"),
    "finish": (aggregated, AggregateKernel, "_results", "aggregate"),
    "session": (in_sessions, WindowValues, "_results", "aggregate"),
    "batch process": (
        lambda s: s.process(Totals(), by="k"),
        batch_process._Calls,
        "_check_states",
        "process",
    ),
}


@pytest.mark.parametrize("place", list(PLACES))
@pytest.mark.parametrize("error", DEFECTS, ids=repr)
def test_a_defect_ends_the_query(
    place: str, error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, owner, name, operator = PLACES[place]
    monkeypatch.setattr(owner, name, raising(error))
    with pytest.raises(TaskError, match="defect of Penstock's") as caught:
        run(made, tmp_path, ["1", "2"])
    assert operator in caught.value.fields["where"]
    assert type(error).__name__ in caught.value.fields["reason"]
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("place", list(PLACES)[:-1])
@pytest.mark.parametrize("error", BY_VALUES, ids=repr)
def test_what_fails_without_rows_is_no_rows_fault(
    place: str, error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, owner, name, operator = PLACES[place]
    monkeypatch.setattr(owner, name, raising(error))
    with pytest.raises(TaskError, match="defect of Penstock's") as caught:
        run(made, tmp_path, ["1", "2"])
    assert operator in caught.value.fields["where"]


def test_a_defect_beside_a_users_method_ends_the_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "fit_record", lambda *_: None)  # so it cannot be called
    with pytest.raises(TaskError, match=r"defect of Penstock's") as caught:
        run(lambda s: s.process(Counting(), by="k"), tmp_path, ["1", "2"])
    assert "process" in caught.value.fields["where"]
    assert "penstock.operators.keyed.process:" in caught.value.fields["reason"]


@pytest.mark.parametrize("error", [OSError("disk"), MemoryError("full")], ids=repr)
def test_an_error_that_speaks_for_itself_is_left_alone(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluate, "transform", raising(error))
    with pytest.raises(type(error), match=str(error)):
        run(mapped, tmp_path, ["1"])


def looked_up(value: str) -> int:
    return {"1": 1, "2": 2, "a": 3, "b": 4}[value]


def applied(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select("k", pl.Series("n", [looked_up(x) for x in rows["x"]], dtype=pl.Int64))


def as_lists(stream: Stream) -> Stream:
    both = pl.concat_list(pl.lit(1)) + pl.col("x").str.split(",").list.len().repeat_by(
        pl.col("x").str.split(",").list.len()
    ).cast(pl.List(pl.Int64))
    return stream.map(n=both)


BY_ROWS: dict[str, Callable[[Stream], Stream]] = {
    "cast": mapped,
    "python in a map": lambda s: s.map(
        n=pl.col("x").map_elements(looked_up, return_dtype=pl.Int64)
    ),
    "python in a filter": lambda s: s.filter(
        pl.col("x").map_elements(looked_up, return_dtype=pl.Int64) > 0
    ),
    "apply": lambda s: s.apply(applied, schema={"k": pl.String, "n": pl.Int64}),
    "lists": as_lists,
}


@pytest.mark.parametrize("name", list(BY_ROWS))
def test_a_row_is_refused_for_what_it_is(name: str, tmp_path: Path) -> None:
    counts = run(BY_ROWS[name], tmp_path, ["1", "2", "z,z", "1"])
    assert (counts["refused"], counts["rows"]) == (1, 3)


def test_python_in_an_aggregate_may_raise_anything(tmp_path: Path) -> None:
    argument = pl.col("x").map_elements(looked_up, return_dtype=pl.Int64)

    def summed(stream: Stream) -> Stream:
        return stream.aggregate(by="k", window=ps.tumbling("1 minute"), n=argument.sum())

    counts = run(summed, tmp_path, ["1", "z"])
    assert (counts["refusedResults"], counts["rows"]) == (1, 0)


def test_a_function_that_needs_rows_still_blames_them() -> None:
    def step(rows: pl.DataFrame) -> pl.DataFrame:
        with foreign():
            if not rows.height or "z" in rows["x"]:
                raise KeyError("z")
        return rows

    good, bad = refuse_failing(step, pl.DataFrame({"x": ["a", "z"]}), "apply", 9)
    assert (pl.concat(good)["x"].to_list(), [b.reason for b in bad]) == (["a"], ["KeyError: 'z'"])
    with pytest.raises(KeyError):
        refuse_failing(step, pl.DataFrame({"x": []}), "apply", 9)
