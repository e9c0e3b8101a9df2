"""The SQL front end: SQL text becomes the operators that a user could have written in Python.

Law: what SQL says and Penstock cannot do is refused, by name, with its line and column; nothing is
left out in silence.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.errors import QueryError
from penstock.query.stream import Stream
from penstock.sql.dialect import parse_statements
from penstock.sql.places import Mistakes
from penstock.sql.query import translate
from penstock.sql.scope import Relation
from penstock.sql.times import time_columns


def sql(text: str, /, **tables: Stream) -> Stream:
    """Return the stream of an SQL query over streams.

    Args:
        text: One SELECT; docs/sql.md has the grammar.
        tables: The streams that FROM can name.

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
    penstock.errors.QueryError: the query has 1 mistake:
      1. unknown column 'sorce'; did you mean 'src'?; line 1, column 8
    """
    problems = [problem for stream in tables.values() for problem in stream._problems]
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


def relations(tables: Mapping[str, Stream]) -> dict[str, Relation | None]:
    """Return streams as relations, with what is known of their event time."""
    return {
        name: Relation(stream=stream, times=time_columns(stream._node))
        for name, stream in tables.items()
    }
