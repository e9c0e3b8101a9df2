"""Key columns: how a user names them, and what can be wrong with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import polars as pl

from penstock.query.expressions import unknown_column

Names = str | Iterable[str]
"""One column, or several."""


def names_of(names: Names) -> tuple[str, ...]:
    """Return the columns that a user named.

    >>> names_of("src"), names_of(["src", "dst"])
    (('src',), ('src', 'dst'))
    """
    return (names,) if isinstance(names, str) else tuple(names)


def key_problems(verb: str, keys: tuple[str, ...], schema: Mapping[str, pl.DataType]) -> list[str]:
    """Return what is wrong with the key columns of an operator."""
    found = [f"{verb}: {unknown_column(key, schema)}" for key in keys if key not in schema]
    found += [f"{verb}: column {key!r} is given twice" for key in keys if keys.count(key) > 1]
    found += [
        f"{verb}: column {key!r} is {schema[key]}; a key is neither a list nor a struct"
        for key in keys
        if key in schema and schema[key].is_nested()
    ]
    return list(dict.fromkeys(found))
