"""Enrich: columns from a table, by key. The table stands still (`Lookup`) or changes (`Enrich`).

Laws: a row gets the columns of at most one row of the table; a row whose key is unknown, or null,
gets nulls or is left out. From a table that changes, it gets the newest row of its key that is not
later than itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from penstock.query.expressions import UNKNOWN, first_line, unknown_column
from penstock.query.keys import Names, key_problems, names_of
from penstock.query.nodes import Node

HOW = ("left", "inner")
Types = Mapping[str, pl.DataType]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lookup(Node):
    """Adds the columns of a table that stands still; ``table`` has them by their final names."""

    table: pl.DataFrame
    on: tuple[str, ...]
    how: str

    def reads(self, port: int, wanted: set[str]) -> set[str]:
        """Return the columns of an input that are needed to give the wanted columns."""
        return (wanted & set(self.inputs[0].schema)) | set(self.on)

    @property
    def title(self) -> str:
        """What the operator does, in a few words."""
        return f"enrich on {', '.join(self.on)} ({self.how}) from {self.table.height} rows"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Enrich(Node):
    """Adds the columns of the newest row of a changing table.

    ``renamed`` gives the columns of the table, but for the keys, each with its name in the result.
    """

    on: tuple[str, ...]
    how: str
    renamed: tuple[tuple[str, str], ...]

    @property
    def stateful(self) -> bool:
        """Whether the operator keeps rows or results from one epoch to the next."""
        return True

    @property
    def note(self) -> str:
        """How the operator works, for plans."""
        return "keeps the newest row per key"

    @property
    def title(self) -> str:
        """What the operator does, in a few words."""
        return f"enrich on {', '.join(self.on)} ({self.how}) from the newest rows"

    def keys(self, port: int) -> tuple[str, ...] | None:
        """Return the columns by which rows of an input are routed."""
        return self.on

    def reads(self, port: int, wanted: set[str]) -> set[str]:
        """Return the columns of an input that are needed to give the wanted columns.

        All of them: rows of the table at the same place are told apart by their columns, and left
        rows that wait must have what another version of the query may read of them.
        """
        return set(self.inputs[port].schema)

    def wants_order(self, ordered: bool) -> bool:
        """Return whether input rows must carry their order, if results have to or not."""
        return True

    def facts(self) -> dict[str, Any]:
        """Return what the operator's state depends on, as plain values for the checkpoint."""
        return {
            "keys": list(self.on),
            "how": self.how,
            "names": [list(pair) for pair in self.renamed],
            "rows": {name: str(dtype) for name, dtype in self.inputs[0].schema.items()},
            "table": {name: str(dtype) for name, dtype in self.inputs[1].schema.items()},
        }


def enrich_node(
    stream: Node, table: Any, *, on: Names, how: str, suffix: str
) -> tuple[Node, list[str]]:
    """Return the operator that adds a table's columns, and what is wrong with it.

    Args:
        stream: The stream.
        table: The stream's node of a changing table, a frame, or the path of a Parquet file.
        on: The key columns, in both.
        how: What happens to rows whose key the table does not have.
        suffix: What is put after the name of a column that the stream has too.
    """
    keys = names_of(on)
    found = [] if how in HOW else [f"enrich: how={how!r} is not allowed; allowed: left, inner"]
    found += [] if keys else ["enrich: no key columns given; on='id', for example"]
    found += key_problems("enrich on", keys, stream.schema)
    given = table if isinstance(table, Node) else _frame(table, found)
    found += _table_problems(keys, stream.schema, given.schema)
    renamed = _rename(keys, stream.schema, given.schema, suffix)
    names = [*stream.schema, *[name for _, name in renamed]]
    found += [
        f"enrich: column {name!r} would be there twice; choose another suffix"
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]
    schema = dict(stream.schema) | {name: given.schema[column] for column, name in renamed}
    if isinstance(given, Node):
        inputs = (stream, given)
        return Enrich(inputs=inputs, schema=schema, on=keys, how=how, renamed=renamed), found
    if not found:
        given, twice = _by_key(given, keys, renamed)
        found += twice
    return Lookup(inputs=(stream,), schema=schema, table=given, on=keys, how=how), found


def _frame(table: Any, found: list[str]) -> pl.DataFrame:
    if isinstance(table, pl.DataFrame):
        return table
    if isinstance(table, str | Path):
        try:
            return pl.read_parquet(table)
        except (OSError, pl.exceptions.PolarsError) as error:
            found.append(f"enrich: cannot read the table {str(table)!r}: {first_line(error)}")
            return pl.DataFrame()
    found.append(
        "enrich: a table is a stream, a Polars DataFrame or the path of a Parquet file; "
        f"got {type(table).__name__}"
    )
    return pl.DataFrame()


def _table_problems(keys: tuple[str, ...], stream: Types, table: Types) -> list[str]:
    if not table:  # it could not be read, and that was said
        return []
    found = [f"enrich table: {unknown_column(key, table)}" for key in keys if key not in table]
    found += [
        f"enrich on: column {key!r} is {stream[key]} in the stream and {table[key]} in the table"
        for key in keys
        if key in stream and key in table and UNKNOWN not in (stream[key], table[key])
        if stream[key] != table[key]
    ]
    found += [
        f"enrich table: column names that begin with '__' are reserved; name={name!r}"
        for name in table
        if name.startswith("__")
    ]
    return found


def _rename(
    keys: tuple[str, ...], stream: Types, table: Types, suffix: str
) -> tuple[tuple[str, str], ...]:
    return tuple(
        (name, f"{name}{suffix}" if name in stream else name) for name in table if name not in keys
    )


def _by_key(
    table: pl.DataFrame, keys: tuple[str, ...], renamed: Iterable[tuple[str, str]]
) -> tuple[pl.DataFrame, list[str]]:
    """Return the rows of a table that have a key, and a complaint if two have the same."""
    known = table.drop_nulls(list(keys)).rename(dict(renamed))
    twice = known.filter(known.select(list(keys)).is_duplicated())
    if not twice.height:
        return known, []
    first = ", ".join(f"{key}={twice[key][0]!r}" for key in keys)
    return known, [f"enrich table: several rows have one key; the first of them: {first}"]
