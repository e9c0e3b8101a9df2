"""The SQL front end: SQL text becomes the operators that a user could have written in Python.

Law: what SQL says and Penstock cannot do is refused, by name, with its line and column; nothing is
left out in silence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from penstock.base.errors import QueryError
from penstock.query.stream import Stream
from penstock.sql.dialect import parse_statements
from penstock.sql.places import Mistakes
from penstock.sql.query import translate
from penstock.sql.scope import Relation
from penstock.sql.times import time_columns


def sql(text: str, /, **tables: Stream | pl.DataFrame) -> Stream:
    """Return the stream of an SQL query over streams.

    Args:
        text: One SELECT; docs/sql.md has the grammar.
        tables: The streams that FROM can name, and frames that they can be joined with by key.

    Raises:
        QueryError: Something is wrong or not supported; each mistake has its line and column.

    >>> import penstock as ps
    >>> calls = ps.from_rows([{"src": "a", "ts": ps.at("2024-01-01"), "n": 1}], time="ts")
    >>> busy = sql(
    ...     '''SELECT src, window_end, sum(n) AS total FROM calls
    ...        GROUP BY src, TUMBLE(ts, '1 minute') HAVING count(*) > 3''',
    ...     calls=calls,
    ... )
    >>> list(busy.schema)
    ['src', 'window_end', 'total']
    >>> sql("SELECT sorce FROM calls", calls=calls)
    Traceback (most recent call last):
    ...
    penstock.base.errors.QueryError: the query has 1 mistake:
      1. unknown column 'sorce'; did you mean 'src'?; line 1, column 8
    """
    _check_tables(tables)
    streams = [table for table in tables.values() if isinstance(table, Stream)]
    problems = [problem for stream in streams for problem in stream._problems]
    if problems:
        raise QueryError(problems=list(dict.fromkeys(problems)))
    found, statements = parse_statements(text)
    if len(statements) != 1:
        raise QueryError(problems=(f"sql takes one SELECT; found {len(statements)} statements",))
    mistakes = Mistakes(text=found)
    made = translate(statements[0], relations(tables), mistakes)
    if made is None or mistakes.problems:
        raise QueryError(problems=mistakes.problems)
    return made.stream


def _check_tables(tables: Mapping[str, Any]) -> None:
    odd = [
        f"sql: a table is a stream or a Polars DataFrame; {name!r} is {type(table).__name__}"
        for name, table in tables.items()
        if not isinstance(table, Stream | pl.DataFrame)
    ]
    if odd:
        raise QueryError(problems=odd)


def relations(
    tables: Mapping[str, Stream | pl.DataFrame],
) -> dict[str, Relation | pl.DataFrame | None]:
    """Return streams as relations, with what is known of their event time; frames stay."""
    return {
        name: table
        if isinstance(table, pl.DataFrame)
        else Relation(stream=table, times=time_columns(table._node))
        for name, table in tables.items()
    }
