"""SQL gives the rows that DuckDB gives; time bands allow exactly what their conditions allow."""

from __future__ import annotations

from datetime import datetime, timedelta

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import exp

from penstock.sql.bands import Moment, find_band, tightest
from penstock.sql.dialect import parse_statements
from penstock.testing.compare import difference
from tests.unit.test_sql import BUCKET, ask_duckdb, calls, run, sql

T0 = datetime(2024, 1, 1)
REACH = 12
PAIRS = pl.DataFrame(
    [
        {"l": T0, "r": T0 - timedelta(microseconds=difference)}
        for difference in range(-REACH, REACH + 1)
    ]
)

spans = st.integers(0, REACH - 2).map(lambda n: f"INTERVAL '{n} microseconds'")
orders = st.sampled_from(["<", "<=", ">", ">=", "="])
shifted = st.sampled_from(["l", "r"]).flatmap(
    lambda name: st.one_of(
        st.just(name),
        st.tuples(st.sampled_from("+-"), spans).map(lambda s: f"{name} {s[0]} {s[1]}"),
        st.tuples(st.sampled_from("+-"), spans).map(lambda s: f"({name}) {s[0]} ({s[1]})"),
    )
)


@st.composite
def conditions(draw: st.DrawFn) -> str:
    kind = draw(st.sampled_from(["compare", "difference", "distance", "between"]))
    order = draw(orders)
    if kind == "compare":
        return f"{draw(shifted)} {order} {draw(shifted)}"
    if kind == "difference":
        sides = draw(st.sampled_from(["l - r", "r - l"])), draw(spans)
        return f" {order} ".join(draw(st.permutations(sides)))
    if kind == "distance":
        distance = draw(st.sampled_from(["abs(l - r)", "abs(r - l)"]))
        less = draw(st.sampled_from(["<", "<="]))
        more = {"<": ">", "<=": ">="}[less]
        span = draw(spans)
        return draw(st.sampled_from([f"{distance} {less} {span}", f"{span} {more} {distance}"]))
    low, high = draw(spans), draw(spans)
    return draw(
        st.sampled_from([f"l BETWEEN r - {low} AND r + {high}", f"r BETWEEN l - {low} AND l"])
    )


def moment(column: exp.Column) -> Moment:
    return {"l": "left", "r": "right"}[column.name], column.name


def parse_condition(text: str) -> exp.Expr:
    condition: exp.Expr = parse_statements(f"SELECT * FROM t WHERE {text}")[1][0].args["where"].this
    return condition


@given(st.lists(conditions(), min_size=1, max_size=4))
def test_a_band_is_its_conditions(texts: list[str]) -> None:
    found = [find_band(parse_condition(text), moment) for text in texts]
    for text, band in zip(texts, found, strict=True):
        if band is not None:  # else it is over one side, such as l < l
            assert _allowed(pl.sql_expr(text)) == _between(band.low_us, band.high_us), text
    bands = [band for band in found if band is not None]
    joined = tightest(bands)
    if joined is not None and len(bands) == len(texts):
        truth = pl.all_horizontal([pl.sql_expr(text) for text in texts])
        assert _allowed(truth) == _between(joined.low_us, joined.high_us)
        assert all(abs(d) <= (joined.reach_us or 0) for d in _allowed(truth))


def _allowed(predicate: pl.Expr) -> list[int]:
    kept = PAIRS.filter(predicate)
    return (kept["l"] - kept["r"]).dt.total_microseconds().sort().to_list()


def _between(low: int | None, high: int | None) -> list[int]:
    return [
        d
        for d in range(-REACH, REACH + 1)
        if (low is None or d >= low) and (high is None or d <= high)
    ]


few = settings(max_examples=max(1, settings().max_examples // 4))
numbers = st.sampled_from(
    [
        "x",
        "y",
        "x - y - 1",
        "(x + y) * 2",
        "x - (y - 1)",
        "coalesce(x, 0)",
        "abs(y - 5)",
        "- x + 2",
        "CASE WHEN ok THEN x ELSE 0 END",
        "length(src)",
        "x % 3",
        "2 * -x",
        "x / (y + 1) / 2",
    ]
)
words = st.sampled_from(
    [
        "src",
        "dst",
        "upper(src)",
        "src || dst",
        "coalesce(src, '?')",
        "CASE WHEN x > 3 THEN 'a' ELSE dst END",
    ]
)
comparisons = st.one_of(
    st.tuples(numbers, st.sampled_from(["<", "<=", "=", "<>"]), numbers).map(" ".join),
    st.tuples(words, st.sampled_from(["=", "<", "IS DISTINCT FROM"]), words).map(" ".join),
    st.sampled_from(
        [
            "ok",
            "ok IS NOT FALSE",
            "src IS NULL",
            "NOT src LIKE 'A%'",
            "x NOT IN (1, 2)",
            "(ok IS TRUE) = (x > 1)",
            "x BETWEEN 2 AND 4",
            "\"end\" - start > INTERVAL '1 minute'",
        ]
    ),
)
predicates = st.recursive(
    comparisons,
    lambda parts: st.one_of(
        st.tuples(parts, st.sampled_from(["AND", "OR"]), parts).map(" ".join),
        parts.map(lambda part: f"NOT ({part})"),
    ),
    max_leaves=4,
)
aggregates = st.one_of(
    st.tuples(st.sampled_from(["sum", "min", "max", "avg", "count"]), numbers).map(
        lambda call: f"{call[0]}({call[1]})"
    ),
    words.map(lambda word: f"count(DISTINCT {word})"),
    predicates.map(lambda predicate: f"count(*) FILTER (WHERE {predicate})"),
    st.sampled_from(["count(*)", "(sum(x) + 1) * 2", "coalesce(sum(x), 0) - count(*)"]),
)


@few
@given(st.lists(st.one_of(numbers, words, predicates), min_size=1, max_size=3), predicates)
def test_a_select_as_in_duckdb(items: list[str], where: str) -> None:
    named = ", ".join(f"{item} AS c{i}" for i, item in enumerate(items))
    query = f"SELECT {named} FROM calls WHERE {where}"
    odd = difference(run(sql(query, calls=calls())), ask_duckdb(query))
    assert not odd, odd


@few
@given(
    st.lists(st.one_of(numbers, words), max_size=2, unique=True),
    st.lists(aggregates, min_size=1, max_size=3),
    predicates,
    aggregates,
)
def test_a_group_by_as_in_duckdb(
    keys: list[str], values: list[str], where: str, having: str
) -> None:
    named = [f"{key} AS k{i}" for i, key in enumerate(keys)]
    named += [f"{value} AS v{i}" for i, value in enumerate(values)]
    groups = ", ".join([*keys, "TUMBLE(ts, '1 minute')"])
    query = f"SELECT {', '.join(named)} FROM calls WHERE {where} GROUP BY {groups}"
    query += f" HAVING {having} > 1"
    asked = query.replace("TUMBLE(ts, '1 minute')", BUCKET)
    odd = difference(run(sql(query, calls=calls())), ask_duckdb(asked))
    assert not odd, odd
