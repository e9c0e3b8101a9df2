"""Random queries as plain descriptions, so that a failing example reads like a query.

Every stream that operators share has the columns of `COLUMNS`; an operator that changes them is
followed by a select that brings its results back into that form. So any two streams can be united
or joined, and any operator follows any other. Operators that make many rows of few are not put
behind one another without end: a stream has a weight, and a query in which it grows large is cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

import penstock as ps
from penstock.query.expressions import ExpressionLike
from penstock.query.stream import Sinks, Stream
from penstock.query.windows import Window

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
HUGE = pl.col("x") * (1 << 60)
EXACT = pl.col("x").cast(pl.Decimal(38, 2)) * pl.col("g").cast(pl.Decimal(38, 3))
WIDE = pl.col("x").abs().cast(pl.UInt64) * (1 << 61)
ODD = pl.when(pl.col("x") == 4).then(pl.lit("nan").cast(pl.Float64)).otherwise(pl.col("y"))
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
    "huge sum": ("alone", HUGE.sum()),
    "huge avg": ("alone", HUGE.mean()),
    "huge kept": ("alone", HUGE.mean() + 0 * pl.col("x").median()),
    "huge kept sum": ("alone", HUGE.sum() + 0 * pl.col("x").median().cast(pl.Int64)),
    "huge some": ("alone", HUGE.filter(pl.col("g") > 0).sum()),
    "huge span": ("alone", HUGE.cast(pl.Duration("us")).mean()),
    "wide sum": ("alone", WIDE.sum()),
    "wide avg": ("alone", WIDE.mean()),
    "decimal sum": ("alone", EXACT.sum()),
    "decimal avg": ("alone", EXACT.mean()),
    "decimal last": ("alone", pl.struct(EXACT.max(), l=EXACT.last(), f=EXACT.first())),
    "decimal kept": ("alone", pl.struct(EXACT.mean(), s=EXACT.sum(), m=EXACT.median())),
    "max odd": ("alone", ODD.max()),
    "min odd": ("alone", ODD.min()),
    "kept odd": ("alone", pl.struct(ODD.max(), l=ODD.min(), m=pl.col("x").median())),
}
WINDOWS: dict[str, Window] = {
    "5s": ps.tumbling("5 seconds"),
    "1us": ps.tumbling(timedelta(microseconds=1)),
    "10s/5s": ps.sliding("10 seconds", every="5 seconds"),
    "10s/4s+3s": ps.sliding("10 seconds", every="4 seconds", offset="3 seconds"),
    "7s/3s": ps.sliding("7 seconds", every="3 seconds"),
    "12s/1s": ps.sliding("12 seconds", every="1 second"),
    "37s/2s": ps.sliding("37 seconds", every="2 seconds"),
    "2.5s/1.5s": ps.sliding("2500 ms", every="1500 ms"),
    "1h": ps.tumbling("1 hour"),
    "session 3s": ps.session("3 seconds"),
    "session 1us": ps.session(timedelta(microseconds=1)),
    "session 1m": ps.session("1 minute"),
    "3 rows": ps.count_window(3),
    "1 row": ps.count_window(1),
    "5/2 rows": ps.count_window(5, every=2),
    "7/1 rows": ps.count_window(7, every=1),
}
JOINS: dict[str, dict[str, Any]] = {
    "key": {"on": "k", "within": "5 seconds"},
    "keys": {"on": ("k", "g"), "within": "20 seconds", "where": "x < x_right or y > 1"},
    "real key": {"on": "y", "within": "3 seconds", "where": "k = k_right"},
    "other names": {"left_on": "g", "right_on": "x", "within": "7 seconds"},
    "strict": {"on": "k", "within": "2 seconds", "where": "cast(s as bigint) >= g_right"},
    "left": {"on": "k", "within": "4 seconds", "how": "left"},
    "left where": {"on": "g", "within": "6 seconds", "how": "left", "where": "x > x_right"},
    "full": {"on": "k", "within": "3 seconds", "how": "full"},
    "full names": {"left_on": "k", "right_on": "s", "within": "9 seconds", "how": "full"},
    "narrow": {"on": "k", "within": timedelta(microseconds=1), "how": "full"},
    "2 rows": {"on": "k", "within": ps.count_window(2)},
    "3 rows": {"on": ("g",), "within": ps.count_window(3), "where": "y <= y_right"},
}
PRODUCTS: dict[str, dict[str, Any]] = {
    "more": {"within": "2 seconds", "where": "x > x_right"},
    "either": {"within": "5 seconds", "where": "k = s_right or x = x_right + 1"},
    "all": {"within": "1 second", "where": pl.lit(True)},
    "strict": {"within": "2 seconds", "where": "cast(s as bigint) = g_right"},
    "2 rows": {"within": ps.count_window(2), "where": "x >= x_right"},
    "4 rows": {"within": ps.count_window(4), "where": "k = k_right"},
}
TOPS: dict[str, dict[str, Any]] = {
    "now": {"k": 2, "order": "x"},
    "now per key": {"k": 1, "order": "y", "by": "k", "descending": False},
    "5s": {"k": 2, "order": "x * g", "window": ps.tumbling("5 seconds")},
    "7s/3s": {
        "k": 3,
        "order": "x",
        "by": "g",
        "window": ps.sliding("7 seconds", every="3 seconds"),
    },
    "least": {"k": 2, "order": "k", "window": ps.tumbling("1 minute"), "descending": False},
}
DEDUPS: dict[str, dict[str, Any]] = {
    "for ever": {"by": "k"},
    "5s": {"by": "k", "within": "5 seconds"},
    "pair": {"by": ("k", "g"), "within": "2 seconds"},
    "real": {"by": "y", "within": timedelta(milliseconds=500)},
}
TABLE = pl.DataFrame({"k": ["a", "b", None], "label": ["A", "B", "none"], "x": [10, 20, 30]})
ENRICHES: dict[str, dict[str, Any]] = {
    "left": {"on": "k"},
    "inner": {"on": "k", "how": "inner"},
}
LISTS: dict[str, pl.Expr] = {
    "numbers": pl.concat_list("x", "g"),
    "pairs": pl.concat_list(pl.struct(p="x", q="k"), pl.struct(p="g", q="s")),
    "none": pl.when(pl.col("x") > 3).then(pl.concat_list("x")).otherwise(None),
    "empty": pl.concat_list("x").list.head(pl.col("g").fill_null(0)),
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


class Running(ps.Process):
    """Counts and sums a key's rows; forgets the key two seconds after its last row."""

    state: Mapping[str, Any] = {"n": pl.Int64, "total": pl.Int64, "texts": pl.List(pl.String)}
    output: Mapping[str, Any] = {
        "n": pl.Int64,
        "total": pl.Int64,
        "text": pl.String,
        "why": pl.String,
    }

    def on_row(self, row: Mapping[str, Any], context: ps.Context) -> list[dict[str, Any]]:
        """Add a row; fails where s is 'z', as a user's code might."""
        if row["s"] == "z":
            raise ValueError("z")
        before = context.state or {"n": 0, "total": 0, "texts": []}
        texts = [*before["texts"], row["s"]][-2:]
        after = {"n": before["n"] + 1, "total": before["total"] + (row["x"] or 0), "texts": texts}
        context.state = None if row["x"] == 9 else after
        context.clear_timers()
        context.set_timer(context.time + timedelta(seconds=2))
        if row["x"] == 4:
            return []
        return [{"n": after["n"], "total": after["total"], "text": row["s"], "why": "row"}]

    def on_timer(self, time: datetime, context: ps.Context) -> list[dict[str, Any]]:
        """Forget the key, and say what it had."""
        before, context.state = context.state, None
        if before is None:
            return []
        return [{"n": before["n"], "total": before["total"], "text": None, "why": "timer"}]


class Tally(ps.BatchProcess):
    """Numbers a key's rows and sums them up, many keys at once."""

    state: Mapping[str, Any] = {"n": pl.Int64, "total": pl.Int64}
    output: Mapping[str, Any] = {
        "n": pl.Int64,
        "total": pl.Int64,
        "text": pl.String,
        "why": pl.String,
    }

    def on_rows(self, rows: pl.DataFrame, state: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Number and sum; fails where s is 'z', as a user's code might."""
        if "z" in rows["s"]:
            raise ValueError("z")
        before = rows.join(state, on="k", how="left", nulls_equal=True)
        x = pl.col("x").fill_null(0)
        done = before.select(
            "__row",
            "k",
            n=pl.col("n").fill_null(0) + pl.int_range(1, pl.len() + 1).over("k"),
            total=pl.col("total").fill_null(0) + x.cum_sum().over("k"),
            text="s",
            why=pl.lit("batch"),
        )
        kept = done.group_by("k", maintain_order=True).agg(pl.col("n", "total").last())
        return done.filter(pl.col("n") % 2 == 1), kept


PROCESSES: dict[str, ps.Process | ps.BatchProcess] = {"running": Running(), "tally": Tally()}
HEAVY = 8


class _Builder:
    def __init__(self, text: QueryText) -> None:
        self.text = text
        self.streams: list[tuple[Stream, float]] = []
        self.raw: dict[int, Stream] = {}
        for number, delay in enumerate(text.delays):
            source = ps.from_rows([], schema=COLUMNS, time="ts", name=f"s{number}",
                                  delay=timedelta(seconds=delay))  # fmt: skip
            self.streams.append((source, 1))
        for step in text.steps:
            self._add(step)

    def _add(self, step: Step) -> None:
        stream, weight = self._at(step.input)
        other, other_weight = self._at(step.other)
        if step.kind == "map":
            self.streams.append((stream.map(**MAPS[step.which]), weight))
        elif step.kind == "filter":
            self.streams.append((stream.filter(FILTERS[step.which]), weight))
        elif step.kind == "spread":
            self.streams.append((stream.spread(), weight))
        elif step.kind == "apply":
            self.streams.append((stream.apply(doubled, schema=COLUMNS), weight))
        elif step.kind == "route":
            predicates, rest = ROUTES[step.which]
            self.streams += [(output, weight) for output in stream.route(*predicates, rest=rest)]
        elif step.kind == "union":
            self.streams.append((stream.union(other), weight + other_weight))
        elif step.kind == "aggregate":
            self._aggregate(stream, weight, step)
        elif step.kind in ("join", "product"):
            if weight * other_weight < HEAVY:
                self._pair(step, stream, other, 4 * weight * other_weight)
        else:
            self._keyed(step, stream, other, weight)

    def _aggregate(self, stream: Stream, weight: float, step: Step) -> None:
        values = {f"v{i}": VALUES[name][1] for i, name in enumerate(step.values)}
        result = stream.aggregate(window=WINDOWS[step.which], by=step.by, **values)
        kinds = {f"v{i}": VALUES[name][0] for i, name in enumerate(step.values)}
        more = 6 if step.which in ("12s/1s", "37s/2s", "7/1 rows") else 1
        if weight * more < 4 * HEAVY:
            self._made(result, _normal(result, step.by, kinds), weight * more)

    def _pair(self, step: Step, stream: Stream, other: Stream, weight: float) -> None:
        result = (
            stream.join(other, **JOINS[step.which])
            if step.kind == "join"
            else stream.product(other, **PRODUCTS[step.which])
        )
        self._made(result, _one_of_two(result), weight)

    def _keyed(self, step: Step, stream: Stream, other: Stream, weight: float) -> None:
        if step.kind == "dedup":
            self._made(None, stream.dedup(**DEDUPS[step.which]), weight)
        elif step.kind == "top":
            best = stream.top(**TOPS[step.which])
            self._made(best, best.select(*[c for c in COLUMNS if c != "g"], g="rank"), weight)
        elif step.kind == "process":
            done = stream.process(PROCESSES[step.which], by="k")
            self._made(done, _of_process(done), weight)
        elif step.kind == "lookup":
            found = stream.enrich(TABLE, **ENRICHES[step.which])
            rest = [c for c in COLUMNS if c not in ("s", "x")]
            self._made(None, found.select(*rest, s="label", x="x + coalesce(x_right, 1)"), weight)
        elif step.kind == "enrich":
            found = stream.enrich(other, **ENRICHES[step.which])
            self._made(found, _one_of_two(found), weight)
        else:
            self._made(None, _exploded(stream, step.which), 2 * weight)

    def _made(self, raw: Stream | None, normal: Stream, weight: float) -> None:
        if raw is not None:
            self.raw[len(self.streams)] = raw
        self.streams.append((normal, weight))

    def _at(self, index: int) -> tuple[Stream, float]:
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


def _one_of_two(result: Stream) -> Stream:
    """Return pairs as rows of `COLUMNS`, with something of both sides."""
    key = pl.coalesce("k", "k_right") if "k_right" in result.schema else pl.col("k")
    number = "g_right" if "g_right" in result.schema else "g"
    real = "y_right" if "y_right" in result.schema else "y"
    return result.select(
        k=key,
        g=number,
        x=pl.col("x") + pl.col("x_right").fill_null(100),
        y=real,
        s=pl.coalesce("s", "s_right"),
        d=pl.coalesce("d_right", "d"),
        ts=pl.coalesce("ts", "ts_right"),
    )


def _of_process(done: Stream) -> Stream:
    return done.select(
        "k",
        g="n",
        x="total",
        y=pl.lit(None, dtype=pl.Float64),
        s="text",
        d=pl.lit(None, dtype=pl.Duration("us")),
        ts=pl.lit(None, dtype=pl.Datetime("us")),
    )


def _exploded(stream: Stream, which: str) -> Stream:
    rest = [name for name in COLUMNS if name not in ("x", "s")]
    if which == "pairs":
        rows = stream.select(*rest, items=LISTS[which]).explode("items")
        return rows.select(*rest, x="p", s="q")
    rows = stream.select(*rest, "s", items=LISTS[which]).explode("items")
    return rows.select(*rest, "s", x="items")
