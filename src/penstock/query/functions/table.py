"""The table of functions, as docs/sql.md shows it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from penstock.query.functions import KINDS
from penstock.query.functions.entry import Function

BEGIN, END = "<!-- functions -->", "<!-- end of functions -->"
_HEAD = (
    "| {kind} | gives | NULL | example | PostgreSQL |",
    "|---|---|---|---|---|",
)


def show(value: Any) -> str:
    """Return a value as the table writes it.

    >>> [show(v) for v in (None, True, 1.5, "a", timedelta(seconds=6), [1, None])]
    ['NULL', 'true', '1.5', "'a'", '0:00:06', '[1, NULL]']
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(show(part) for part in value)}]"
    if isinstance(value, Decimal | datetime | date | time | timedelta):
        return str(value)
    return repr(value)


def write_table() -> str:
    """Return the table in Markdown, one part for each kind of function."""
    return "\n".join(line for kind, entries in KINDS.items() for line in _part(kind, entries))


def put_table(document: str) -> str:
    """Return a document with the table in its place."""
    before, _, rest = document.partition(BEGIN)
    return f"{before}{BEGIN}\n{write_table()}\n{END}{rest.partition(END)[2]}"


def _part(kind: str, entries: tuple[Function, ...]) -> Iterator[str]:
    yield ""
    yield from (line.format(kind=kind) for line in _HEAD)
    for entry in entries:
        called = f"`{entry.signature}`" + "".join(f", `{name}`" for name in entry.aliases)
        example = f"`{entry.example}` is `{entry.value}`"
        cells = (called, entry.gives, entry.nulls, example, entry.differs)
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
