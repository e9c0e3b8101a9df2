"""Load a query from a Python or an SQL file."""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.base.errors import PenstockError
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
    import_from(file.parent)
    try:
        found: Any = runpy.run_path(str(file), run_name="penstock_query").get("query")
        if callable(found) and not isinstance(found, Sinks):
            found = found(session())
    except PenstockError:
        raise
    except Exception as error:  # whatever a user's program raises, this is the file
        reason = f"{_line_in(file, error)}{type(error).__name__}: {error}"
        raise LoadError(file=str(file), reason=reason) from error
    if isinstance(found, list | tuple) and found and all(isinstance(s, Sinks) for s in found):
        found = found[0].also(*found[1:])
    if not isinstance(found, Sinks):
        reason = "it defines no query; write query = stream.write_parquet(...)"
        raise LoadError(file=str(file), reason=reason)
    return found


def import_from(folder: Path) -> None:
    """Let this process and the workers that it starts import the modules of a folder.

    As Python does with the folder of a program; workers of Spark take the path from the environment
    in which Spark is started.
    """
    path = str(folder.resolve())
    if path not in sys.path:
        sys.path.insert(0, path)
    paths = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    if path not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([path, *paths])


def _line_in(file: Path, error: BaseException) -> str:
    """Return the line of a file on which an error was raised or caused, for a message."""
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: " if error.filename == str(file) else ""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(file)]
    return f"line {lines[-1]}: " if lines else ""


def _load_sql(file: Path) -> Sinks:
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise LoadError(file=str(file), reason=f"it is not UTF-8: {error}") from error
    return load_script(text)
