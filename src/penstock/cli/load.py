"""Load a query from a Python or an SQL file."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.query.stream import Sinks
from penstock.sql.script import load_script

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession


class LoadError(PenstockError):
    """A file that gives no query."""

    def __str__(self) -> str:
        return f"{self.fields['file']}: {self.fields['reason']}"


def load_query(file: Path, session: Callable[[], SparkSession]) -> Sinks:
    """Return the query that a Python or an SQL file defines.

    A Python file names it ``query``: a stream with a sink, several of them in a list, or a function
    that gets a Spark session and returns one. A file that ends in ``.sql`` has statements; see
    `penstock.sql.script.load_script`.

    Args:
        file: The file.
        session: Makes the Spark session, if the file asks for one.
    """
    if not file.is_file():
        raise LoadError(file=str(file), reason="no such file")
    if file.suffix.lower() == ".sql":
        return _load_sql(file)
    try:
        found: Any = runpy.run_path(str(file), run_name="penstock_query").get("query")
    except (SyntaxError, ImportError, NameError) as error:
        raise LoadError(file=str(file), reason=f"{type(error).__name__}: {error}") from error
    if callable(found) and not isinstance(found, Sinks):
        found = found(session())
    if isinstance(found, list | tuple) and found and all(isinstance(s, Sinks) for s in found):
        found = found[0].also(*found[1:])
    if not isinstance(found, Sinks):
        reason = "it defines no query; write query = stream.write_parquet(...)"
        raise LoadError(file=str(file), reason=reason)
    return found


def _load_sql(file: Path) -> Sinks:
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise LoadError(file=str(file), reason=f"it is not UTF-8: {error}") from error
    return load_script(text)
