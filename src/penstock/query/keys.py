"""Key columns: how a user names them, and what can be wrong with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import polars as pl

from penstock.base.errors import QueryError
from penstock.base.hashing import instance_of
from penstock.base.problems import locate
from penstock.query.expressions import unknown_column

Names = str | pl.Expr | Iterable[str | pl.Expr]
"""One column, or several."""


def names_of(names: Names) -> tuple[str, ...]:
    """Return the columns that a user named.

    Raises:
        QueryError: An expression is no name.

    >>> names_of("src"), names_of(["src", "dst"]), names_of(pl.col("src"))
    (('src',), ('src', 'dst'), ('src',))
    """
    return tuple(_name(n) for n in ((names,) if isinstance(names, str | pl.Expr) else names))


def _name(name: str | pl.Expr) -> str:
    if not isinstance(name, pl.Expr):
        return name
    if name.meta.is_column():
        return name.meta.output_name()
    sentence = f"keys are columns; name the expression first: map(key=…), then 'key'; got {name}"
    raise QueryError(problems=locate([sentence]))


def key_problems(
    verb: str, keys: tuple[str, ...], schema: Mapping[str, pl.DataType], *, nested: bool = False
) -> list[str]:
    """Return what is wrong with the key columns of an operator.

    Args:
        verb: What the operator is called.
        keys: The columns.
        schema: The columns that there are.
        nested: Whether the operator takes lists and structs as keys.
    """
    found = [f"{verb}: {unknown_column(key, schema)}" for key in keys if key not in schema]
    found += [f"{verb}: column {key!r} is given twice" for key in keys if keys.count(key) > 1]
    odd = [key for key in keys if key in schema and schema[key].is_nested()]
    if nested:
        found += [
            f"{verb}: column {key!r} is {schema[key]}; a key has no arrays in it; cast it to a list"
            for key in odd
            if not _has_key_types(schema[key])
        ]
    else:
        found += [
            f"{verb}: column {key!r} is {schema[key]}; a key is neither a list nor a struct here; "
            "use its fields"
            for key in odd
        ]
    return list(dict.fromkeys(found))


def _has_key_types(dtype: pl.DataType) -> bool:
    """Return whether values of a type can be keys."""
    if isinstance(dtype, pl.List):
        return _has_key_types(instance_of(dtype.inner))
    if isinstance(dtype, pl.Struct):
        return all(_has_key_types(instance_of(field.dtype)) for field in dtype.fields)
    return not dtype.is_nested()
