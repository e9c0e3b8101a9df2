"""Reading the files of an epoch: whole, in order, with what cannot be read set apart.

Law: a bad file or a bad row costs exactly itself; the rows around it are read as if it were not
there.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import unquote, urlparse

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.operators.rowwise.blame import foreign, refuse_failing
from penstock.query.expressions import first_line
from penstock.query.nodes import CsvFormat
from penstock.sources.exact import fit
from penstock.sources.formats import BY_COLUMN, DEFAULT, FORMATS, Schema, csv_options, json_types
from penstock.sources.lines import Record, TextFile, read_records
from penstock.sources.texts import row_texts

TEXT = ("csv", "ndjson")
"""Formats in which values are texts."""
LINE = "__line"
GONE = "the file is gone; it was deleted before it was read"
_UNREADABLE = (pl.exceptions.PolarsError, OSError, UnicodeError, pa.ArrowException)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """Rows, or a whole file (``row`` is then empty), that could not be read.

    Attributes:
        path: The file.
        reason: Why it could not be read.
        row: The row as text: the line of a text file, else a JSON object.
        rows: How many rows it stands for.
        line: The number of the line in a text file.
        whole: Whether no row of the file could be read.
        incomplete: Whether the file may become readable, because it may still be written.
    """

    path: str
    reason: str
    row: str = ""
    rows: int = 1
    line: int | None = None
    whole: bool = False
    incomplete: bool = False


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
    if form not in BY_COLUMN:
        return None
    try:
        frame = FORMATS[form](paths, schema, DEFAULT).select(list(schema)).collect()
    except (pl.exceptions.PolarsError, OSError):
        return None
    return frame if dict(frame.schema) == dict(schema) else None


def count_rows(form: str, path: str) -> int:
    """Return how many rows a file has, from its footer."""
    rows: int = FORMATS[form]([path], None, DEFAULT).select(pl.len()).collect().item()
    return rows


def read_one(
    form: str,
    path: str,
    schema: Schema,
    limit: int,
    part: tuple[int, int] | None = None,
    *,
    csv: CsvFormat = DEFAULT,
    every: bool = False,
    numbered: bool = False,
) -> ReadFile:
    """Return the rows of one file that conform to a schema, and what does not.

    Args:
        form: The file's format.
        path: Where it is.
        schema: The columns to read and their declared types.
        limit: How many bad rows to look for at most.
        part: The first row and the number of rows to read; the whole file unless given.
        csv: How CSV files are written.
        every: Whether to return the file's other columns, too, as they are.
        numbered: With ``every``: whether to return the numbers of lines of a text, if they can be
            told, as the column `LINE`.
    """
    try:
        frame = _read(form, path, schema, part, csv, every=every)
    except _UNREADABLE as error:
        return _read_closely(form, path, schema, limit, part, csv, error, every=every)
    found = _conform(form, path, frame, schema, limit, every=every)
    if form in TEXT and (numbered or found.rejected or _may_be_blank(frame)):
        return _with_lines(form, path, frame, schema, limit, csv, every=every) or found
    return found


def _read(
    form: str,
    path: str,
    schema: Schema,
    part: tuple[int, int] | None,
    csv: CsvFormat,
    *,
    every: bool,
) -> pl.DataFrame:
    rows = _commas(FORMATS[form]([path], schema, csv), schema, csv)
    if form in BY_COLUMN and not every and fits(rows.collect_schema(), schema):
        rows = rows.select(list(schema))
    return (rows if part is None else rows.slice(*part)).collect()


def _commas(rows: pl.LazyFrame, schema: Schema, csv: CsvFormat) -> pl.LazyFrame:
    """Return texts of numbers with a point where they have a comma, and the other way round."""
    if not csv.decimal_comma:
        return rows
    there = rows.collect_schema()
    names = [
        name
        for name, dtype in schema.items()
        if name in there and (dtype.is_float() or isinstance(dtype, pl.Decimal))
    ]
    return rows.with_columns(pl.col(names).str.replace_many([",", "."], [".", ","]))


def _conform(
    form: str, path: str, frame: pl.DataFrame, schema: Schema, limit: int, *, every: bool
) -> ReadFile:
    empty = pl.DataFrame(schema=dict(schema))
    missing = [name for name in schema if name not in frame.columns]
    if form in TEXT and not frame.width:  # an empty file
        return ReadFile(rows=empty)
    if missing:
        reason = f"the file has no column {', '.join(map(repr, missing))}"
        lost = Rejected(path=path, reason=reason, rows=frame.height, whole=True)
        return ReadFile(rows=empty, rejected=(lost,))
    good, bad = conform(frame, schema, path, limit, parse=form in TEXT, every=every)
    return ReadFile(rows=good, rejected=tuple(bad))


def reject_unreadable(form: str, path: str, error: Exception) -> Rejected:
    """Return the rejection of a file that cannot be read at all."""
    if isinstance(error, FileNotFoundError):
        return Rejected(path=path, reason=GONE, rows=0, whole=True)
    reason = f"not a readable {form} file: {first_line(error)}"
    return Rejected(path=path, reason=reason, rows=0, whole=True, incomplete=True)


def _read_closely(
    form: str,
    path: str,
    schema: Schema,
    limit: int,
    part: tuple[int, int] | None,
    csv: CsvFormat,
    error: Exception,
    *,
    every: bool,
) -> ReadFile:
    """Read what can be read of a file that cannot be read at once."""
    empty = pl.DataFrame(schema=dict(schema))
    bad = reject_unreadable(form, path, error)
    if part is not None:  # the footer was read, so the file is complete and its rows are known
        lost = replace(bad, rows=part[1], whole=False, incomplete=False)
        return ReadFile(rows=empty, rejected=(lost,))
    whole = ReadFile(rows=empty, rejected=(bad,))
    try:
        if form == "parquet":
            return _read_groups(path, schema, limit, every=every)
        if form in TEXT:
            text = read_records(form, path, csv)
            return _salvage(form, path, text, schema, limit, csv, every=every) or whole
    except _UNREADABLE:
        return whole
    return whole


def _read_groups(path: str, schema: Schema, limit: int, *, every: bool) -> ReadFile:
    """Read a Parquet file by row group; those that are damaged are refused rows."""
    metadata = pq.read_metadata(path)
    parts, offset = [], 0
    for number in range(metadata.num_row_groups):
        part = (offset, metadata.row_group(number).num_rows)
        parts.append(read_one("parquet", path, schema, limit, part, every=every))
        offset += part[1]
    frames = [pl.DataFrame(schema=dict(schema)), *[found.rows for found in parts]]
    rejected = tuple(one for found in parts for one in found.rejected)
    return ReadFile(rows=pl.concat(frames, how="diagonal_relaxed"), rejected=rejected)


def fits(found: Schema, schema: Schema) -> bool:
    """Return whether nothing will be rejected, so that no other column has to be told of."""
    return all(found.get(name) == dtype for name, dtype in schema.items())


def conform(
    frame: pl.DataFrame,
    schema: Schema,
    path: str,
    limit: int,
    *,
    parse: bool = False,
    every: bool = False,
) -> tuple[pl.DataFrame, list[Rejected]]:
    """Give columns their declared types; a row with a value that has none there is rejected.

    Args:
        frame: The rows; all of their columns are told of rows that are rejected.
        schema: The columns to return and their declared types.
        path: Where the rows are from.
        limit: How many bad rows to tell of; one more is too many for the query anyway.
        parse: Whether texts are the values of a text format.
        every: Whether to return other columns, too, as they are.
    """
    others = [name for name in frame.columns if name not in schema]
    wanted = [*schema, *(others if every else ())]
    wrong = {name: dtype for name, dtype in schema.items() if frame.schema[name] != dtype}
    if not wrong:
        return frame.select(wanted), []
    fitted = {name: fit(frame[name], dtype, parse=parse) for name, dtype in wrong.items()}
    failed = pl.any_horizontal(found.misfits for found in fitted.values())
    wrong_at = pl.coalesce(
        pl.when(found.misfits).then(pl.lit(name)) for name, found in fitted.items()
    )
    bad = frame.with_columns(wrong_at.alias("__wrong")).filter(failed).head(limit + 1)
    texts = row_texts(bad.drop("__wrong", LINE, strict=False))
    rejected = []
    for text, row in zip(texts, bad.iter_rows(named=True), strict=True):
        name = row["__wrong"]
        reason = (
            f"column {name!r}: {row[name]!r} of type {frame.schema[name]} "
            f"has no exact value of type {wrong[name]}"
        )
        rejected.append(Rejected(path=path, reason=reason, row=text, line=row.get(LINE)))
    good = frame.with_columns(found.values.alias(name) for name, found in fitted.items())
    return good.filter(~failed).select(wanted), rejected


def _may_be_blank(frame: pl.DataFrame) -> bool:
    """Return whether a row may be a blank line, which Polars takes for a row without values."""
    if not frame.width or not frame[:, 0].null_count():
        return False
    return bool(frame.select(pl.all_horizontal(pl.all().is_null()).any()).item())


def _with_lines(
    form: str,
    path: str,
    frame: pl.DataFrame,
    schema: Schema,
    limit: int,
    csv: CsvFormat,
    *,
    every: bool,
) -> ReadFile | None:
    """Read a file again with the numbers of lines; None if they cannot be told."""
    try:
        text = read_records(form, path, csv)
    except _UNREADABLE:
        return None
    if text.broken or len(text.body) != frame.height:
        return None
    numbered = frame.with_columns(pl.Series(LINE, [r.line for r in text.body], dtype=pl.Int64))
    return _find_rows(form, path, numbered, text, schema, limit, every=every)


def _find_rows(
    form: str,
    path: str,
    numbered: pl.DataFrame,
    text: TextFile,
    schema: Schema,
    limit: int,
    *,
    every: bool,
) -> ReadFile:
    """Return the rows of numbered lines; blank ones are no rows."""
    blank = [record.line for record in text.body if not record.text.strip()]
    rows = numbered.filter(~pl.col(LINE).is_in(blank)) if blank else numbered
    found = _conform(form, path, rows, schema, limit, every=every)
    texts = {record.line: record.text for record in text.body}
    told = [
        one if one.line is None else replace(one, row=texts[one.line]) for one in found.rejected
    ]
    return replace(found, rejected=tuple(told))


def _salvage(
    form: str, path: str, text: TextFile, schema: Schema, limit: int, csv: CsvFormat, *, every: bool
) -> ReadFile | None:
    """Read a text file line by line; None if not even its header can be read."""
    body = pl.DataFrame(
        [(r.line, r.text) for r in text.body],
        schema={LINE: pl.Int64, "line": pl.String},
        orient="row",
    )

    def step(part: pl.DataFrame) -> pl.DataFrame:
        lines = [*text.header, *part["line"].to_list()]
        with foreign():  # what a parser says of a line, or of a header, is the file's fault
            rows = _parse_lines(form, lines, schema, csv)
        return rows.with_columns(part[LINE])

    good, bad = refuse_failing(step, body, path, limit)
    broken = [_reject_broken(path, record, csv) for record in text.broken]
    refused = [
        Rejected(path=path, reason=one.reason, row=one.row["line"][0], line=one.row[LINE][0])
        for one in bad
    ]
    if not good:
        empty = pl.DataFrame(schema=dict(schema))
        lines = (*broken, *refused)
        return ReadFile(rows=empty, rejected=lines) if lines or not text.header else None
    rows = pl.concat(good, how="diagonal_relaxed")
    found = _find_rows(form, path, rows, text, schema, limit, every=every)
    return replace(found, rejected=(*broken, *refused, *found.rejected))


def _reject_broken(path: str, record: Record, csv: CsvFormat) -> Rejected:
    reason = f"the line has bytes that are no {csv.encoding}"
    return Rejected(path=path, reason=reason, row=record.text, line=record.line)


def _parse_lines(form: str, lines: Sequence[str], schema: Schema, csv: CsvFormat) -> pl.DataFrame:
    text = io.BytesIO("".join(f"{line}\n" for line in lines).encode())
    if form == "csv":
        plain = replace(csv, skip_rows=0, encoding="utf8")
        return _commas(
            pl.read_csv(text, **csv_options(schema, plain)).lazy(), schema, csv
        ).collect()
    return pl.read_ndjson(text, schema=json_types(schema))
