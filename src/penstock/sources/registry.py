"""The kinds of sources: from the type of a reader's value to what can be done with it.

A new kind is one file and one line here. A kind that knows a library of its own, such as Spark's
DataFrames, is added by the module that defines its value (`add_kind`): who holds such a value has
imported that module. Law: a value has one kind, the same in every process.
"""

from __future__ import annotations

from typing import Any

from penstock.base.errors import QueryError
from penstock.query.nodes import Files, Reader, Rows, Source
from penstock.sources.folder import FolderReader
from penstock.sources.reader import SourceReader
from penstock.sources.rows import RowsReader

_KINDS: dict[type[Reader], type[SourceReader[Any]]] = {
    Files: FolderReader,
    Rows: RowsReader,
}


def add_kind(value: type[Reader], reader: type[SourceReader[Any]]) -> None:
    """Let sources with a reader of one type be read by a class.

    Raises:
        ValueError: Another class reads them.
    """
    if _KINDS.setdefault(value, reader) is not reader:
        raise ValueError(f"{value.__name__} is read by {_KINDS[value].__name__}")


def reader_of(source: Source) -> SourceReader[Any]:
    """Return what can be done with the input of a source.

    Raises:
        QueryError: Nobody has said what its reader can do.
    """
    kind = _KINDS.get(type(source.reader))
    if kind is None:
        name = type(source.reader).__qualname__
        problem = f"source {source.name}: no kind of source is registered for {name}"
        raise QueryError(problems=(problem,))
    return kind(source, source.reader)
