"""Explode: one row for each element of a list."""

from __future__ import annotations

import polars as pl

from penstock.query.expressions import UNKNOWN, unknown_column
from penstock.query.nodes import Explode, Node


def explode_node(stream: Node, column: str) -> tuple[Node, list[str]]:
    """Return the operator that explodes a column, and what is wrong with it."""
    dtype = stream.schema.get(column)
    found = []
    if dtype is None:
        found.append(f"explode: {unknown_column(column, stream.schema)}")
    elif not isinstance(dtype, pl.List) and dtype != UNKNOWN:
        found.append(f"explode: column {column!r} is no list; it is {dtype}")
    inner = (
        pl.DataFrame(schema={"_": dtype.inner}).schema["_"]
        if isinstance(dtype, pl.List)
        else UNKNOWN
    )
    rest = {name: known for name, known in stream.schema.items() if name != column}
    if not isinstance(inner, pl.Struct):
        schema = {name: inner if name == column else t for name, t in stream.schema.items()}
        return Explode(inputs=(stream,), schema=schema, column=column), found
    fields = {f.name: pl.DataFrame(schema={"_": f.dtype}).schema["_"] for f in inner.fields}
    found += [
        f"explode {column}: field {name!r} clashes with a column of the stream"
        for name in fields
        if name in rest
    ]
    return Explode(inputs=(stream,), schema=rest | fields, column=column), found
