"""Tables of a script that stand still: they are read when the query is built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
from sqlglot import exp

from penstock.query.expressions import first_line, unknown_column
from penstock.sql.declarations import Declaration
from penstock.sql.places import Mistakes

_SCANS: dict[str, Callable[..., pl.LazyFrame]] = {
    "parquet": pl.scan_parquet,
    "csv": pl.scan_csv,
    "ndjson": pl.scan_ndjson,
    "arrow": pl.scan_ipc,
}


def read_still(declared: Declaration, node: exp.Expr, mistakes: Mistakes) -> pl.DataFrame | None:
    """Return the rows of a table, with the columns that are declared, or note why it can't be."""
    path = str(declared.options["path"])
    columns = declared.columns
    if columns is None:
        return None
    typed: dict[str, Any] = {"schema_overrides": columns} if declared.format == "csv" else {}
    try:
        found = _SCANS[declared.format](path, **typed)
        known = found.collect_schema()
        missing = [name for name in columns if name not in known]
        for name in missing:
            mistakes.add(f"table {declared.name!r}: {unknown_column(name, known)}", node)
        if missing:
            return None
        wanted = [pl.col(name).cast(dtype) for name, dtype in columns.items()]
        return (found.select(wanted) if columns else found).collect()
    except (OSError, pl.exceptions.PolarsError) as error:
        mistakes.add(
            f"cannot read the table {declared.name!r} at {path!r}: {first_line(error)}", node
        )
        return None
