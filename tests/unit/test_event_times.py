"""An event time that is an expression: in every reader, by any cut, with what fails set apart."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import penstock as ps
from penstock.base.errors import CheckpointError, QueryError
from penstock.compiler import compile_query
from penstock.driver.outputs import read_side_output
from penstock.driver.sizing.sample import take_sample
from penstock.query.expressions import ExpressionLike
from penstock.query.stream import Stream
from penstock.sql.script import load_script
from penstock.testing import TestStream
from penstock.testing.runner import LocalRun

SCHEMA: dict[str, Any] = {"day": pl.String, "hour": pl.Int64, "sec": pl.Int64, "x": pl.Int64}
TIMES: dict[str, ExpressionLike] = {
    "seconds": "to_timestamp(sec)",
    "fractions": "to_timestamp(sec + 0.5)",
    "milliseconds": "epoch_ms(sec * 1000)",
    "text": "strptime(day || ' ' || cast(hour as varchar), '%Y-%m-%d %H')",
    "date": "cast(day as date)",
    "polars": pl.from_epoch("sec"),
    "zoned": pl.from_epoch("sec").dt.replace_time_zone("UTC").dt.convert_time_zone("Asia/Tokyo"),
    "strict": "to_timestamp(cast(day as bigint))",
}
REFUSED = {"strict": 19, "text": 3, "polars": 1, "zoned": 1}
"""How many rows have no time, if not two; Polars' ``from_epoch`` wraps."""
START = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp())


def _row(number: int, **changed: Any) -> dict[str, Any]:
    time = datetime(2024, 1, 1) + timedelta(hours=number)
    row = {"day": f"{time:%Y-%m-%d}", "hour": time.hour, "sec": START + 3600 * number, "x": number}
    return row | changed


def _rows() -> list[dict[str, Any]]:
    order = [0, 1, 3, 2, 7, 4, 30, 31, 5, 33, 29, 60, 61, 62]
    odd = [_row(70, sec=None, day=None), _row(71, sec=2**62, day="z"), _row(72, hour=99)]
    return [_row(n) for n in order] + odd + [_row(73), _row(20)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", TIMES)
@pytest.mark.parametrize("instances", [1, 3])
def test_rows_are_those_of_the_reference(kind: str, instances: int) -> None:
    stream = ps.from_rows([], schema=SCHEMA, time=TIMES[kind], delay="3 hours")
    hours = stream.aggregate(by="hour", window=ps.sliding("8 hours", every="4 hours"), n="sum(x)")
    joined = stream.join(stream, on="hour", within="1 day").select("x", "x_right")
    sinks = hours.write_memory("m", ordered=True).also(joined.write_memory("j"))
    with TestStream(sinks, instances=instances) as run:
        rows = _rows()
        run.add(rows[:6])
        run.crash(rows[6:12])
        run.add(rows[12:])
        run.expect_reference()
        run.finish()
        run.expect_reference()
        counts = run.counts()
        assert counts["read"] == len(rows)
        assert counts["refused"] == REFUSED.get(kind, 2)
        assert counts["late"] or kind == "strict"


def test_a_row_without_a_time_is_a_dead_letter_with_the_reason() -> None:
    time = "to_timestamp(cast(day as bigint))"
    stream = ps.from_rows([], schema={"day": pl.String, "x": pl.Int64}, time=time)
    with TestStream(stream.write_memory("m")) as run:
        run.add([{"day": day, "x": i} for i, day in enumerate(["1", None, "z", "4"])])
        letters = run.dead_letters()
        assert [row["x"] for row in run.rows("m")] == [0, 3]
    null, failed = letters["reason"].to_list()
    assert null == f"the event time {time!r} is null"
    assert failed.startswith(f"the event time {time!r} cannot be computed: ")
    assert '"z"' in letters["row"][1]


@pytest.mark.parametrize("form", ["parquet", "arrow", "csv", "ndjson"])
@pytest.mark.parametrize("instances", [1, 3])
def test_files_of_every_format_have_it(form: str, instances: int, tmp_path: Path) -> None:
    """With several instances a row group is late against others that only its reader has seen."""
    frame = pl.DataFrame(_rows(), schema=SCHEMA)
    path = tmp_path / f"a.{form}"
    if form == "parquet":
        frame.write_parquet(path, row_group_size=4)
    elif form == "arrow":
        frame.write_ipc(path)
    else:
        frame.write_csv(path) if form == "csv" else frame.write_ndjson(path)
    reader = getattr(ps, f"read_{form}")
    stream = reader(tmp_path, time="to_timestamp(sec)", delay="3 hours", schema=SCHEMA)
    query = compile_query(stream.select("x").write_memory().sinks, instances=instances)
    run = LocalRun(query, tmp_path / "run")
    run.files({0: [str(path)]})
    late = read_side_output(run.driver.root, "late")[0]
    assert sorted(run.table()["x"]) == [0, 1, 2, 3, 4, 7, 30, 31, 33, 60, 61, 62, 72, 73]
    assert sorted(late["sec"] - START) == [3600 * n for n in (5, 20, 29)]
    assert read_side_output(run.driver.root, "dead")[0].height == 2


def test_a_column_by_any_other_name_is_the_column() -> None:
    rows = [{"end": datetime(2024, 1, 1), "a b": datetime(2024, 1, 2)}]
    for time in ("end", '"end"', pl.col("end")):
        assert ps.from_rows(rows, time=time)._node.time == "end"  # type: ignore[attr-defined]
        assert ps.from_rows(rows, time=time)._node.moment is None  # type: ignore[attr-defined]
    assert ps.from_rows(rows, time="a b")._node.time == "a b"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("time", "sentence"),
    [
        ("sec", "time column 'sec' must be a timestamp or a date; it is Int64; write "
                "time='to_timestamp(sec)' if it counts seconds, time='epoch_ms(sec)'"),
        ("sec * 2", "time='to_timestamp(sec * 2)' if it counts seconds"),
        ("day", "write time=\"strptime(day, '%Y-%m-%d %H:%M:%S')\""),
        ("x > 2", "time 'x > 2' must give a timestamp or a date; it gives Boolean"),
        ("sce", "time column: unknown column 'sce'; did you mean 'sec'?"),
        ("to_timestamp(sce)", "time: unknown column 'sce'; did you mean 'sec'?"),
        ("to_timestamp(1)", "is the same for every row"),
        (pl.from_epoch("sec").max(), "not row-wise"),
        ("to_timestamp(", "source rows: time: cannot "),
    ],
)  # fmt: skip
def test_what_is_no_time_is_refused_with_the_remedy(time: ExpressionLike, sentence: str) -> None:
    with pytest.raises(QueryError) as error:
        ps.from_rows([], schema=SCHEMA, time=time).write_memory()
    assert sentence in str(error.value)


def _counted(time: ExpressionLike) -> Stream:
    stream = ps.from_rows([], schema=SCHEMA, time=time)
    return stream.aggregate(window=ps.tumbling("1 hour"), n="count(*)")


def test_it_is_pinned_shown_and_has_a_zone(tmp_path: Path) -> None:
    query = _counted("to_timestamp(sec)").write_memory("m")
    with TestStream(query, tmp_path) as run:
        run.add([_row(1)])
    TestStream(_counted("TO_TIMESTAMP( sec )").write_memory("m"), tmp_path).close()
    with pytest.raises(CheckpointError, match="source 0 time was"):
        TestStream(_counted("epoch_ms(sec)").write_memory("m"), tmp_path)
    assert "time = to_timestamp(sec)" in query.explain()
    assert _counted("to_timestamp(sec)").schema["window_end"] == pl.Datetime("us", "UTC")
    assert _counted(TIMES["zoned"]).schema["window_end"] == pl.Datetime("us", "Asia/Tokyo")


def test_a_sql_file_says_it(tmp_path: Path) -> None:
    text = """
    CREATE TABLE calls (sec BIGINT, x BIGINT)
      WITH (path = 'calls/', time = 'to_timestamp(sec)');
    SELECT window_end, sum(x) AS x FROM calls GROUP BY TUMBLE(EVENT_TIME(), '1 hour')
    """
    assert "time = to_timestamp(sec)" in load_script(text).explain()
    with pytest.raises(QueryError, match=r"which is EVENT_TIME\(\); found sec"):
        load_script(text.replace("EVENT_TIME()", "sec"))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) AS n FROM s WHERE x > 0 GROUP BY TUMBLE(To_Timestamp(s.sec), '1 hour')",
        "SELECT count(*) AS n FROM (SELECT *, to_timestamp(sec) AS ts FROM s) AS t "
        "GROUP BY TUMBLE(ts, '1 hour')",
        "WITH t AS (SELECT sec, to_timestamp(sec) AS ts FROM s) SELECT a.ts FROM t AS a "
        "JOIN t AS b ON a.sec = b.sec "
        "AND a.ts BETWEEN b.ts - INTERVAL '1 hour' AND b.ts + INTERVAL '1 hour'",
    ],
)
def test_in_sql_the_expression_is_the_event_time(sql: str) -> None:
    stream = ps.from_rows([], schema=SCHEMA, time="to_timestamp(sec)")
    assert ps.sql(sql, s=stream).schema
    with pytest.raises(QueryError, match=r"over the event time|needs a time band"):
        ps.sql(sql.replace("sec)", "sec + 1)"), s=stream)


def test_a_sample_is_taken(tmp_path: Path) -> None:
    rows = pl.DataFrame({"sec": range(2000)})
    stream = ps.from_rows(rows, time="to_timestamp(sec)")
    query = stream.aggregate(window=ps.tumbling("1 minute"), n="count(*)").write_memory()
    assert take_sample(query.sinks).rows == 1600
