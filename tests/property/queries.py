"""Random queries as plain descriptions, so that a failing example reads like a query.

Every stream that operators share has the columns of `COLUMNS`; an aggregate is followed by a select
that brings its results back into that form. So any two streams can be united, and aggregates chain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import polars as pl

import penstock as ps
from penstock.query.expressions import ExpressionLike
from penstock.query.stream import Sinks, Stream

COLUMNS: dict[str, pl.DataType] = {
    "k": pl.String(),
    "g": pl.Int64(),
    "x": pl.Int64(),
    "y": pl.Float64(),
    "s": pl.String(),
    "d": pl.Duration("us"),
    "ts": pl.Datetime("us"),
}

MAPS: dict[str, Mapping[str, ExpressionLike]] = {
    "plus": {"x": "x + 1"},
    "several": {"x": "x * g", "y": "y + x", "k": "coalesce(k, 'none')"},
    "modulo": {"g": "x % 3"},
    "constant": {"g": pl.lit(7, dtype=pl.Int64), "k": pl.lit(None, dtype=pl.String)},
    "text": {"s": "cast(x as varchar)"},
    "time": {"ts": "ts + interval '90 seconds'"},
    "case": {"d": pl.when(pl.col("x") > 3).then(pl.col("d") * 2).otherwise(None)},
    "strict": {"x": "cast(s as bigint)"},
    "strict unused": {"d": pl.duration(seconds=pl.col("s").cast(pl.Int64))},
}
FILTERS: dict[str, ExpressionLike] = {
    "more": "x > 3",
    "key": "k = 'a'",
    "real": "y > 2.2371",
    "known": "g is not null",
    "either": "x < 3 or k is null",
    "all": pl.lit(True),
    "strict": "cast(s as bigint) > 1",
}
ROUTES: dict[str, tuple[tuple[ExpressionLike, ...], bool]] = {
    "two": (("x > 5",), True),
    "three": (("k = 'a'", "x > 3"), True),
    "some": (("g = 1", "g = 2"), False),
    "strict": (("cast(s as bigint) > 1", "x > 3"), True),
}
VALUES: dict[str, tuple[str, ExpressionLike]] = {
    "rows": ("int", "count(*)"),
    "count": ("int", "count(x)"),
    "sum": ("int", "sum(x)"),
    "sum or 0": ("int", pl.col("x").sum()),
    "min": ("int", "min(x)"),
    "max": ("int", "max(x)"),
    "first": ("int", "first(x)"),
    "last": ("int", "last(x)"),
    "distinct": ("int", "count(distinct x)"),
    "distinct k": ("int", pl.col("k").n_unique()),
    "some": ("int", "sum(x) filter (where g > 0)"),
    "some rows": ("int", pl.col("x").filter(pl.col("k") == "a").len()),
    "spread": ("int", "max(x) - min(x)"),
    "strict": ("int", "sum(cast(s as bigint))"),
    "small": ("int", pl.col("x").sum().cast(pl.Int8)),
    "literal": ("int", "sum(1) + 0 * count(*)"),
    "true": ("int", "sum(case when x > 3 then 1 else 0 end)"),
    "avg": ("real", "avg(x)"),
    "avg y": ("real", "avg(y)"),
    "sum y": ("real", pl.col("y").sum()),
    "max y": ("real", "max(y)"),
    "last y": ("real", "last(y)"),
    "ratio": ("real", "sum(x) / count(*)"),
    "median": ("real", "median(y)"),
    "late first": ("real", pl.col("y").first() + pl.col("x").median()),
    "var": ("rounded", "variance(x)"),
    "stddev": ("rounded", "stddev(y)"),
    "population": ("rounded", pl.col("y").var(ddof=0)),
    "longest": ("duration", "max(d)"),
    "total": ("duration", pl.col("d").sum()),
    "average": ("duration", "avg(d)"),
    "least key": ("text", "min(k)"),
    "first text": ("text", "first(s)"),
    "last key": ("text", "last(k)"),
    "joined": ("text", pl.col("k").str.join("-")),
    "all x": ("list", pl.col("x").implode()),
}
WINDOWS: dict[str, ps.TimeWindow] = {
    "5s": ps.tumbling("5 seconds"),
    "1us": ps.tumbling(timedelta(microseconds=1)),
    "10s/5s": ps.sliding("10 seconds", every="5 seconds"),
    "7s/3s": ps.sliding("7 seconds", every="3 seconds"),
    "12s/1s": ps.sliding("12 seconds", every="1 second"),
    "37s/2s": ps.sliding("37 seconds", every="2 seconds"),
    "2.5s/1.5s": ps.sliding("2500 ms", every="1500 ms"),
    "1h": ps.tumbling("1 hour"),
}


@dataclass(frozen=True)
class Step:
    """One operator on streams that exist; indices count from the end and wrap around."""

    kind: str
    which: str
    input: int = 0
    other: int = 0
    by: tuple[str, ...] = ()
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class SinkOf:
    """A sink on a stream; ``raw`` is an aggregate's own result, where there is one."""

    stream: int = 0
    ordered: bool = False
    raw: bool = False
    parquet: bool = False


@dataclass(frozen=True)
class QueryText:
    """A whole query: delays of the sources, operators, sinks."""

    delays: tuple[int, ...] = (0,)
    steps: tuple[Step, ...] = ()
    sinks: tuple[SinkOf, ...] = (SinkOf(),)

    def build(self, folder: Path) -> Sinks:
        """Return the query; its Parquet sinks write to a folder."""
        return _Builder(self).sinks(folder)


class _Builder:
    def __init__(self, text: QueryText) -> None:
        self.text = text
        self.streams: list[tuple[Stream, int]] = []
        self.raw: dict[int, Stream] = {}
        for number, delay in enumerate(text.delays):
            source = ps.from_rows([], schema=COLUMNS, time="ts", name=f"s{number}",
                                  delay=timedelta(seconds=delay))  # fmt: skip
            self.streams.append((source, 0))
        for step in text.steps:
            self._add(step)

    def _add(self, step: Step) -> None:
        stream, depth = self._at(step.input)
        if step.kind == "map":
            self.streams.append((stream.map(**MAPS[step.which]), depth))
        elif step.kind == "filter":
            self.streams.append((stream.filter(FILTERS[step.which]), depth))
        elif step.kind == "apply":
            self.streams.append((stream.apply(doubled, schema=COLUMNS), depth))
        elif step.kind == "route":
            predicates, rest = ROUTES[step.which]
            self.streams += [(output, depth) for output in stream.route(*predicates, rest=rest)]
        elif step.kind == "union":
            other, other_depth = self._at(step.other)
            self.streams.append((stream.union(other), max(depth, other_depth)))
        elif depth < 2:
            self._aggregate(stream, depth, step)

    def _aggregate(self, stream: Stream, depth: int, step: Step) -> None:
        values = {f"v{i}": VALUES[name][1] for i, name in enumerate(step.values)}
        result = stream.aggregate(window=WINDOWS[step.which], by=step.by, **values)
        self.raw[len(self.streams)] = result
        kinds = {f"v{i}": VALUES[name][0] for i, name in enumerate(step.values)}
        self.streams.append((_normal(result, step.by, kinds), depth + 1))

    def _at(self, index: int) -> tuple[Stream, int]:
        return self.streams[-1 - index % len(self.streams)]

    def sinks(self, folder: Path) -> Sinks:
        made = []
        for i, sink in enumerate(self.text.sinks):
            place = len(self.streams) - 1 - sink.stream % len(self.streams)
            stream = self.raw.get(place) if sink.raw else None
            chosen = stream or self.streams[place][0]
            if sink.parquet:
                made.append(chosen.write_parquet(str(folder / f"p{i}"), ordered=sink.ordered))
            else:
                made.append(chosen.write_memory(f"m{i}", ordered=sink.ordered))
        return made[0].also(*made[1:])


def doubled(frame: pl.DataFrame) -> pl.DataFrame:
    """Double x; fails where s is 'z', as a user's function might."""
    if "z" in frame["s"]:
        raise ValueError("z")
    return frame.with_columns(pl.col("x") * 2)


def _normal(result: Stream, by: tuple[str, ...], kinds: Mapping[str, str]) -> Stream:
    """Return results as rows of `COLUMNS`; floats are rounded, so that they can be compared on."""

    def first(kind: str) -> str | None:
        return next((name for name, found in kinds.items() if found == kind), None)

    number, real, text, span = first("int"), first("real"), first("text"), first("duration")
    x = pl.col(number).cast(pl.Int64) if number else pl.lit(None, dtype=pl.Int64)
    k = pl.col("k") if "k" in by else pl.col(text) if text else pl.lit(None, dtype=pl.String)
    return result.select(
        k=k,
        g=pl.col("g") if "g" in by else pl.lit(None, dtype=pl.Int64),
        x=x,
        y=pl.col(real).round(6) if real else pl.lit(None, dtype=pl.Float64),
        s=x.cast(pl.String),
        d=pl.col(span) if span else pl.lit(None, dtype=pl.Duration("us")),
        ts="window_end",
    )
