"""The options of CSV files, checked where they are given."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.query.nodes import CsvFormat


def csv_format(
    *,
    separator: str,
    null_values: str | Sequence[str],
    encoding: str,
    header: bool,
    quote: str | None,
    comment: str | None,
    skip_rows: int,
    decimal_comma: bool,
    schema: Mapping[str, Any] | None,
    partitions: bool | Mapping[str, Any] = False,
) -> tuple[CsvFormat, list[str]]:
    """Return how CSV files are written, and what is wrong with what was said.

    >>> options = dict(null_values="NA", header=True, quote='"', comment=None, skip_rows=0)
    >>> options |= dict(encoding="utf8", decimal_comma=False, schema=None)
    >>> csv_format(separator=";;", **options)[1]
    ["read_csv: separator must be one character; separator=';;'"]
    """
    problems = [
        f"read_csv: {name} must be one character; {name}={value!r}"
        for name, value in (("separator", separator), ("quote", quote))
        if value is not None and (len(value) != 1 or not value.isascii())
    ]
    try:
        codecs.lookup(encoding)
    except LookupError:
        problems.append(f"read_csv: encoding must be one that Python knows; encoding={encoding!r}")
    if comment is not None and not comment:
        problems.append(f"read_csv: comment must not be empty; comment={comment!r}")
    if skip_rows < 0:
        problems.append(f"read_csv: skip_rows must not be negative; skip_rows={skip_rows!r}")
    if decimal_comma and separator == ",":
        problems.append("read_csv: decimal_comma=True needs another separator than ','")
    if not header and not schema:
        problems.append("read_csv: without a header give schema={'column': type, ...}, in order")
    in_folders = set(partitions) if isinstance(partitions, Mapping) else set()
    names = () if header else tuple(n for n in schema or () if n not in in_folders)
    texts = (null_values,) if isinstance(null_values, str) else tuple(null_values)
    found = CsvFormat(
        separator=separator,
        null_values=texts,
        encoding=encoding,
        header=header,
        columns=names,
        quote=quote,
        comment=comment,
        skip_rows=skip_rows,
        decimal_comma=decimal_comma,
    )
    return found, problems
