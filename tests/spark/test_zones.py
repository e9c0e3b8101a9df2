"""Times with a zone through Spark and back, and every type that ``foreach_batch`` hands over."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
from pyspark.sql import DataFrame, SparkSession

import penstock as ps
from penstock.query.spark_types import hand_over

NEW_YORK = "America/New_York"


def _session(spark: SparkSession) -> SparkSession:
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", NEW_YORK)
    return session


def test_a_timestamp_of_spark_comes_back_as_one(spark: SparkSession, tmp_path: Path) -> None:
    session = _session(spark)
    session.sql(
        "SELECT id, timestamp'2024-03-09 23:30:00' + make_dt_interval(0, id) AS ts, "
        "timestamp_ntz'2024-03-09 23:30:00' AS wall FROM range(4)"
    ).coalesce(1).write.parquet(str(tmp_path / "in"))
    batch = session.read.parquet(str(tmp_path / "in"))
    frame = session.readStream.schema(batch.schema).parquet(str(tmp_path / "in"))
    seen: list[tuple[dict[str, str], int, int]] = []

    def take(rows: DataFrame, epoch: int) -> None:
        seen.append((dict(rows.dtypes), rows.count(), rows.join(batch, "ts").count()))

    stream = ps.from_spark(frame, time="ts")
    assert stream.schema["ts"] == pl.Datetime("us", NEW_YORK)
    assert stream.schema["wall"] == pl.Datetime("us")
    hours = stream.aggregate(window=ps.tumbling("1 hour"), n="count(*)", wall="max(wall)")
    query = (
        stream.foreach_batch(take)
        .also(stream.write_parquet(tmp_path / "out"), hours.write_parquet(tmp_path / "hours"))
        .start(session, checkpoint=tmp_path / "checkpoint", available_now=True, finish=True)
    )
    query.awaitTermination(120)
    assert query.exception() is None
    types, rows, pairs = next(found for found in seen if found[1])
    assert types == {"id": "bigint", "ts": "timestamp", "wall": "timestamp_ntz"}
    assert rows == pairs == 4
    assert all(found[0] == types for found in seen)
    written = session.read.parquet(str(tmp_path / "out"))
    assert written.join(batch, ["ts", "wall"]).count() == 4
    bounds = session.read.parquet(str(tmp_path / "hours")).orderBy("window_start")
    assert dict(bounds.dtypes)["window_start"] == "timestamp"
    local = bounds.selectExpr("cast(window_start as string)", "n", "cast(wall as string)").collect()
    assert [tuple(row) for row in local] == [
        ("2024-03-09 23:00:00", 1, "2024-03-09 23:30:00"),
        ("2024-03-10 00:00:00", 1, "2024-03-09 23:30:00"),
        ("2024-03-10 01:00:00", 1, "2024-03-09 23:30:00"),
        ("2024-03-10 03:00:00", 1, "2024-03-09 23:30:00"),
    ]


_WHEN = datetime(2024, 3, 10, 12, 30, 15, 123456)
_TYPED: list[tuple[Any, Any, Any]] = [
    (pl.Int8, -1, -1),
    (pl.Int16, -1, -1),
    (pl.Int32, -1, -1),
    (pl.Int64, -(2**63), -(2**63)),
    (pl.Int128, 10**37, Decimal(10**37)),
    (pl.UInt8, 255, 255),
    (pl.UInt16, 2**16 - 1, 2**16 - 1),
    (pl.UInt32, 2**32 - 1, 2**32 - 1),
    (pl.UInt64, 2**64 - 1, Decimal(2**64 - 1)),
    (pl.UInt128, 10**37, Decimal(10**37)),
    (pl.Float16, 1.5, 1.5),
    (pl.Float32, 1.5, 1.5),
    (pl.Float64, 0.1, 0.1),
    (pl.Decimal(10, 2), Decimal("1.25"), Decimal("1.25")),
    (pl.Boolean, True, True),
    (pl.String, "ä", "ä"),
    (pl.Binary, b"\0", b"\0"),
    (pl.Null, None, None),
    (pl.Date, date(2024, 3, 10), date(2024, 3, 10)),
    (pl.Datetime("ms"), _WHEN, _WHEN.replace(microsecond=123000)),
    (pl.Datetime("us"), _WHEN, _WHEN),
    (pl.Datetime("ns"), _WHEN, _WHEN),
    (pl.Datetime("us", NEW_YORK), _WHEN.replace(tzinfo=UTC), _WHEN.replace(tzinfo=UTC)),
    (pl.Datetime("ns", "UTC"), _WHEN.replace(tzinfo=UTC), _WHEN.replace(tzinfo=UTC)),
    (pl.Duration("ms"), timedelta(seconds=-1), timedelta(seconds=-1)),
    (pl.Duration("us"), timedelta(microseconds=1), timedelta(microseconds=1)),
    (pl.Duration("ns"), timedelta(days=1), timedelta(days=1)),
    (pl.Categorical, "a", "a"),
    (pl.Enum(["a"]), "a", "a"),
    (pl.List(pl.UInt8), [1, None], [1, None]),
    (pl.Array(pl.UInt64, 2), [1, 2], [Decimal(1), Decimal(2)]),
    (pl.Struct({"a b": pl.UInt8, "at": pl.Datetime("us")}), {"a b": 1, "at": _WHEN}, (1, _WHEN)),
]


def test_every_type_is_the_same_with_and_without_rows(spark: SparkSession, tmp_path: Path) -> None:
    columns = {f"c{i}": pl.Series([value], dtype=t) for i, (t, value, _) in enumerate(_TYPED)}
    rows = pl.DataFrame(columns | {"ts": [_WHEN], "x": [1]})
    seen: list[tuple[list[tuple[str, str]], list[Any]]] = []

    def take(frame: DataFrame, epoch: int) -> None:
        names = [f"c{i}" for i in range(len(_TYPED))]
        zoned = [name for name, dtype in frame.dtypes if dtype == "timestamp"]
        plain = frame.withColumns({name: frame[name].cast("timestamp_ntz") for name in zoned})
        seen.append((frame.dtypes, [row.asDict() for row in plain.select(*names).collect()]))

    stream = ps.from_rows(rows, time="ts")
    for number, wanted in enumerate(("x > 5", "x < 5")):
        query = (
            stream.filter(wanted)
            .foreach_batch(take)
            .start(spark, checkpoint=tmp_path / str(number), available_now=True, finish=True)
        )
        query.awaitTermination(120)
        assert query.exception() is None
    handed = {name: hand_over(dtype) for name, dtype in rows.schema.items()}
    words = {name: found[1].replace("`", "") for name, found in handed.items() if found}
    assert [dict(types) for types, _ in seen] == [words] * len(seen)
    assert [len(found) for _, found in seen].count(1) == 1 < len(seen)
    values = next(found[0] for _, found in seen if found)
    for i, (dtype, _, expected) in enumerate(_TYPED):
        plain = expected.replace(tzinfo=None) if isinstance(expected, datetime) else expected
        assert values[f"c{i}"] == plain, dtype
