"""The table of functions in the guide: every entry does what it says, and no other is accepted."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from sqlglot import exp

import penstock as ps
from penstock.query.dialect import to_text
from penstock.query.expressions import infer, parse
from penstock.query.functions import FUNCTIONS, KINDS, ROWS
from penstock.query.functions.entry import FIRST, SAME, SKIPS, STRICT, Function
from penstock.query.functions.table import put_table, show
from penstock.query.scalars import reading
from penstock.query.stream import Stream
from penstock.sql.dialect import parse_statements
from penstock.testing.streams import TestStream

GUIDE = Path(__file__).parents[2] / "docs/sql.md"
T0 = ps.at("2024-01-01")
ENTRIES = [entry for kind in KINDS.values() for entry in kind]
TYPES = {str(dtype) for dtype in (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt32, pl.Float64)}
TYPES |= {"String", "Boolean", "Date", "Time", "Datetime", "Duration", "List"}


def table(rows: pl.DataFrame) -> Stream:
    timed = rows.with_columns(ts=pl.Series([T0 + timedelta(seconds=i) for i in range(rows.height)]))
    return ps.from_rows(timed.to_dicts(), schema=dict(timed.schema), time="ts", name="t")


def ask(entry: Function, example: str, rows: pl.DataFrame = ROWS) -> tuple[Stream, Any]:
    """Return what an example gives over rows, once with its type."""
    group = " GROUP BY TUMBLE(ts, '1 hour')" if entry.aggregate else ""
    source = table(rows)
    made = ps.sql(f"SELECT {example} AS v FROM t{group}", t=source)
    timed = rows.with_columns(ts=pl.Series([T0 + timedelta(seconds=i) for i in range(rows.height)]))
    with TestStream(made.write_memory()) as test:
        test.add(timed.to_dicts())
        test.finish()
        values = [row["v"] for row in test.rows()]
    return made, values[0] if values else None


def call_of(entry: Function) -> exp.Expr:
    """Return the call in an example; it may have a `round` around it."""
    select = parse_statements(f"SELECT {entry.example} AS v FROM t")[1][0]
    item: exp.Expr = select.expressions[0].this
    calls = [node for node in item.find_all(exp.Anonymous) if node.name in entry.names]
    return calls[0] if calls else item


def arguments_of(call: exp.Expr) -> list[exp.Expr]:
    return list(call.expressions) if isinstance(call, exp.Anonymous) else [call.this]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.example)
def test_an_example_gives_what_the_table_says(entry: Function) -> None:
    made, value = ask(entry, entry.example)
    assert show(value) == entry.value
    dtype = made.schema["v"]
    if entry.gives in TYPES:
        assert dtype.base_type() == getattr(pl, entry.gives)
    if entry.gives == SAME and entry.name:
        first = to_text(call_of(entry).expressions[-1 if entry.name == "date_trunc" else 0])
        assert dtype.base_type() == infer(parse(first, ROWS.schema), ROWS.schema).base_type()


@pytest.mark.parametrize(
    "entry", [e for e in ENTRIES if e.nulls in (STRICT, FIRST) and e.name], ids=lambda e: e.name
)
def test_strict_functions_give_null_for_null(entry: Function) -> None:
    tried = 0
    for place in range(len(arguments_of(call_of(entry))) if entry.nulls == STRICT else 1):
        call = call_of(entry).copy()
        argument = arguments_of(call)[place]
        rows = pl.DataFrame({"n": [None]}, schema={"n": infer(parse(to_text(argument), {}), {})})
        argument.replace(exp.column("n"))
        try:
            _, value = ask(entry, to_text(call), rows)
        except ps.QueryError:  # it must be a constant
            continue
        tried += 1
        assert value is None, to_text(call)
    assert tried


@pytest.mark.parametrize(
    "entry", [e for e in ENTRIES if e.aggregate and "skips NULL" in e.nulls], ids=lambda e: e.name
)
def test_aggregates_skip_nulls(entry: Function) -> None:
    read = set(parse(to_text(call_of(entry)), ROWS.schema).meta.root_names())
    _, kept = ask(entry, entry.example, ROWS.drop_nulls(read))
    assert show(kept) == entry.value
    if entry.nulls == SKIPS:
        _, none = ask(
            entry,
            entry.example,
            ROWS.with_columns(pl.lit(None, ROWS.schema[n]).alias(n) for n in read),
        )
        assert none is None


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_name_is_accepted(name: str) -> None:
    for entry in FUNCTIONS[name]:
        call = call_of(entry)
        assert isinstance(call, exp.Anonymous | exp.Func)
        if isinstance(call, exp.Anonymous):
            call.set("this", name)
            ask(entry, to_text(call))


def test_what_is_read_in_a_way_of_its_own_is_in_the_table() -> None:
    assert not {*reading._CALLS} - {*FUNCTIONS}


def test_the_guide_shows_the_table() -> None:
    text = GUIDE.read_text()
    assert put_table(text) == text, "run scripts/sql_functions.py"
