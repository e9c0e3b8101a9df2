"""The lines of text files: where a row of CSV or JSON stands, for dead letters.

Law: a record is a row as a reader of the format sees it, with the number of its first line. Files
are read like this only where something in them is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.query.nodes import CsvFormat
from penstock.sources.formats import read_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A row of a text file: the number of its first line, from 1, and its text."""

    line: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFile:
    """The records of a file; ``header`` are the lines that name the columns.

    ``broken`` are records with bytes that the encoding does not have, shown as well as can be.
    """

    header: tuple[str, ...]
    body: tuple[Record, ...]
    broken: tuple[Record, ...] = ()


def read_records(form: str, path: str, csv: CsvFormat) -> TextFile:
    """Return the records of a CSV or NDJSON file.

    Raises:
        OSError: It cannot be read.
        UnicodeError: Its encoding has no way to go on after a mistake.
    """
    if form == "ndjson":
        text = read_bytes(path).decode("utf8", errors="surrogateescape")
        lines = text.split("\n")
        found = [Record(line=n, text=t) for n, t in enumerate(lines, 1) if t.strip()]
        return _sort_out((), found)
    text = read_bytes(path).decode(_name(csv.encoding), errors="surrogateescape")
    found = list(csv_records(text.removeprefix("\ufeff"), csv))
    if csv.header:  # blank lines before it are no rows
        while found and not found[0].text.strip():
            found.pop(0)
    names = 1 if csv.header else 0
    return _sort_out(tuple(record.text for record in found[:names]), found[names:])


def _name(encoding: str) -> str:
    return "utf8" if encoding.lower() == "utf8-lossy" else encoding


def _sort_out(header: tuple[str, ...], records: Sequence[Record]) -> TextFile:
    body = [record for record in records if _is_sound(record.text)]
    broken = [
        Record(line=r.line, text=r.text.encode("utf8", "replace").decode())
        for r in records
        if not _is_sound(r.text)
    ]
    return TextFile(header=header, body=tuple(body), broken=tuple(broken))


def _is_sound(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def csv_records(text: str, csv: CsvFormat) -> Iterator[Record]:
    r"""Yield the records of CSV text, those without values too; a quoted value may have lines.

    >>> [(r.line, r.text) for r in csv_records('k,x\n"a\nb",1\n\nc,2\n', CsvFormat())]
    [(1, 'k,x'), (2, '"a\nb",1'), (4, ''), (5, 'c,2')]
    """
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    first, waiting = 0, ""
    for number, line in enumerate(lines, 1):
        if number <= csv.skip_rows:
            continue
        if not waiting and csv.comment and line.startswith(csv.comment):
            continue
        first = first if waiting else number
        waiting = f"{waiting}\n{line}" if waiting else line
        if csv.quote and waiting.count(csv.quote) % 2:
            continue
        yield Record(line=first, text=waiting.removesuffix("\r"))
        waiting = ""
    if waiting:
        yield Record(line=first, text=waiting)
