"""Reading the files of an epoch: whole, in order, with what cannot be read set apart.

Law: a bad file or a bad row costs exactly itself; the rows around it are read as if it were not
there.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote, urlparse

import polars as pl

from penstock.operators.stateless import refuse_failing
from penstock.query.expressions import first_line
from penstock.sources.formats import FORMATS, Schema, parse_times

_BY_COLUMN = ("parquet", "arrow")
"""Formats of which single columns can be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """Rows, or a whole file (``row`` is then empty), that could not be read."""

    path: str
    reason: str
    row: str = ""
    rows: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFile:
    """What a file gave."""

    rows: pl.DataFrame
    rejected: tuple[Rejected, ...] = field(default=())


def local_path(uri: str) -> str:
    """Return the path of a local file URI.

    >>> local_path("file:///data/a%20b.parquet"), local_path("/data/x")
    ('/data/a b.parquet', '/data/x')
    """
    parsed = urlparse(uri)
    return unquote(parsed.path) if parsed.scheme == "file" else uri


def read_together(form: str, paths: Sequence[str], schema: Schema) -> pl.DataFrame | None:
    """Return the rows of several files at once, or None if any of them needs a closer look."""
    if form not in _BY_COLUMN:
        return None
    try:
        frame = FORMATS[form](paths, schema).select(list(schema)).collect()
    except (pl.exceptions.PolarsError, OSError):
        return None
    return frame if dict(frame.schema) == dict(schema) else None


def read_one(
    form: str, path: str, schema: Schema, limit: int, part: tuple[int, int] | None = None
) -> ReadFile:
    """Return the rows of one file that conform to a schema, and what does not.

    Args:
        form: The file's format.
        path: Where it is.
        schema: The columns to read and their declared types.
        limit: How many bad rows to look for at most.
        part: The first row and the number of rows to read; the whole file unless given.
    """
    empty = pl.DataFrame(schema=dict(schema))
    rejected: list[Rejected] = []
    try:
        rows = FORMATS[form]([path], schema)
        if form in _BY_COLUMN and _fits(rows.collect_schema(), schema):
            rows = rows.select(list(schema))
        frame = (rows if part is None else rows.slice(*part)).collect()
    except FileNotFoundError:
        reason = "the file is gone; it was deleted before it was read"
        return ReadFile(rows=empty, rejected=(Rejected(path=path, reason=reason, rows=0),))
    except (pl.exceptions.PolarsError, OSError) as error:
        salvaged = _salvage(form, path, schema, limit)
        if salvaged is None:
            reason = f"not a readable {form} file: {first_line(error)}"
            return ReadFile(rows=empty, rejected=(Rejected(path=path, reason=reason, rows=0),))
        frame, rejected = salvaged
    missing = [name for name in schema if name not in frame.columns]
    if missing:
        reason = f"the file has no column {', '.join(map(repr, missing))}"
        lost = Rejected(path=path, reason=reason, rows=frame.height)
        return ReadFile(rows=empty, rejected=(*rejected, lost))
    good, bad = _conform(frame, schema, path)
    return ReadFile(rows=good, rejected=(*rejected, *bad))


def _fits(found: Schema, schema: Schema) -> bool:
    """Return whether nothing will be rejected, so that no other column has to be told of."""
    return all(found.get(name) == dtype for name, dtype in schema.items())


def _conform(frame: pl.DataFrame, schema: Schema, path: str) -> tuple[pl.DataFrame, list[Rejected]]:
    """Cast columns to their declared types; rows with a value that does not fit are rejected."""
    wrong = {name: dtype for name, dtype in schema.items() if frame.schema[name] != dtype}
    if not wrong:
        return frame.select(list(schema)), []
    failed = pl.repeat(False, frame.height, dtype=pl.Boolean, eager=True)
    columns, reasons = [], []
    for name, dtype in wrong.items():
        cast = _cast(frame[name], dtype)
        misfit = cast.is_null() & frame[name].is_not_null()
        columns.append(cast.alias(name))
        reasons.append((name, dtype, misfit & ~failed))
        failed = failed | misfit
    rejected = []
    for name, dtype, misfit in reasons:
        for row in frame.filter(misfit).iter_rows(named=True):
            reason = f"column {name!r}: cannot take {row[name]!r} as {dtype}"
            rejected.append(Rejected(path=path, reason=reason, row=_json(row)))
    return frame.with_columns(columns).select(list(schema)).filter(~failed), rejected


def _cast(values: pl.Series, dtype: pl.DataType) -> pl.Series:
    if values.dtype == pl.String and isinstance(dtype, pl.Datetime):
        return parse_times(values).cast(dtype)
    if values.dtype == pl.String and dtype == pl.Boolean:
        words = values.str.to_lowercase()
        return words.replace_strict(
            {"true": True, "1": True, "false": False, "0": False},
            default=None,
            return_dtype=pl.Boolean,
        )
    try:
        return values.cast(dtype, strict=False)
    except pl.exceptions.PolarsError:
        return pl.Series(values.name, [None] * values.len(), dtype=dtype)


def _salvage(
    form: str, path: str, schema: Schema, limit: int
) -> tuple[pl.DataFrame, list[Rejected]] | None:
    """Read a text file line by line; None if lines mean nothing in its format."""
    if form not in ("csv", "ndjson"):
        return None
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return None
    header = lines[:1] if form == "csv" else []
    body = pl.DataFrame(
        {"line": [line for line in lines[len(header) :] if line.strip()]},
        schema={"line": pl.String},
    )

    def step(part: pl.DataFrame) -> pl.DataFrame:
        return _parse_lines(form, [*header, *part["line"].to_list()], schema)

    good, bad = refuse_failing(step, body, path, limit)
    rejected = [
        Rejected(path=path, reason=refusal.reason, row=refusal.row["line"][0]) for refusal in bad
    ]
    return (pl.concat(good) if good else step(body.clear())), rejected


def _parse_lines(form: str, lines: Sequence[str], schema: Schema) -> pl.DataFrame:
    text = io.BytesIO("\n".join(lines).encode())
    if form == "csv":
        return pl.read_csv(text, schema_overrides=dict.fromkeys(schema, pl.String))
    types = {name: pl.String() if dtype.is_temporal() else dtype for name, dtype in schema.items()}
    return pl.read_ndjson(text, schema=types)


def _json(row: dict[str, object]) -> str:
    return pl.DataFrame([row]).select(pl.struct(pl.all()).struct.json_encode()).item()  # type: ignore[no-any-return]
