"""Exact casts: a column of one type as another, and which of its values the other type lacks.

Law: a value is cast only if nothing of it is lost, which is told by casting it back. Numbers stay
numbers, times stay times, texts stay texts: an integer in a column of times means no instant that
can be known here. Texts are read as values only where the format has nothing but texts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import polars as pl

from penstock.sources.formats import parse_times

_UTC = frozenset({"UTC", "Etc/UTC", "GMT", "+00:00"})
_DATES = ("%Y-%m-%d", "%Y/%m/%d", "%d-%m-%Y", "%d/%m/%Y")
"""Forms of dates, those that Polars takes for dates when it looks for a schema."""
_WORDS = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """Values of the wanted type, and for each whether it could not be had (it is then null)."""

    values: pl.Series
    misfits: pl.Series


def fit(values: pl.Series, wanted: pl.DataType, *, parse: bool = False) -> Fitted:
    """Return values as another type, where that is exact.

    Args:
        values: The values, of any type.
        wanted: The type to give them.
        parse: Whether texts are the values of a text format, and are read.

    >>> found = fit(pl.Series([1.0, 2.9, None]), pl.Int64())
    >>> found.values.to_list(), found.misfits.to_list()
    ([1, None, None], [False, True, False])
    """
    found = values.dtype
    if found == wanted or found == pl.Null:
        return Fitted(values=values.cast(wanted), misfits=_flags(values, value=False))
    if isinstance(found, pl.Array):
        return fit(values.arr.to_list(), wanted, parse=parse)
    if isinstance(found, pl.List) and isinstance(wanted, pl.List | pl.Array):
        return _fit_lists(values, wanted, parse=parse)
    if isinstance(found, pl.Struct) and isinstance(wanted, pl.Struct):
        return _fit_structs(values, wanted, parse=parse)
    cast = _cast(values, wanted, parse=parse)
    if cast is None:
        cast = pl.Series(values.name, [None], dtype=wanted).new_from_index(0, values.len())
    misfits = cast.is_null() & values.is_not_null()
    return Fitted(values=cast, misfits=misfits)


def _flags(values: pl.Series, *, value: bool) -> pl.Series:
    return pl.repeat(value, values.len(), dtype=pl.Boolean, eager=True)


def _cast(values: pl.Series, wanted: pl.DataType, *, parse: bool) -> pl.Series | None:
    """Return flat values with null for what does not fit; None if the kinds do not go together."""
    found = values.dtype
    if found == pl.String and parse:
        return _read_texts(values, wanted)
    if found.is_numeric() and wanted.is_numeric():
        return _round_trip(values, wanted)
    if _is_text(found) and _is_text(wanted):
        return _cast_texts(values, wanted)
    if found.is_integer() and wanted == pl.String:
        return values.cast(wanted)
    if isinstance(found, pl.Duration) and isinstance(wanted, pl.Duration):
        return _round_trip(values, wanted)
    if isinstance(found, pl.Datetime | pl.Date) and isinstance(wanted, pl.Datetime | pl.Date):
        return _cast_times(values, wanted)
    return None


def _round_trip(values: pl.Series, wanted: pl.DataType) -> pl.Series:
    cast = _cast_to_nearest(values, wanted)
    return _where(_cast_to_nearest(cast, values.dtype).eq_missing(values), cast)


def _cast_to_nearest(values: pl.Series, wanted: pl.DataType) -> pl.Series:
    if isinstance(wanted, pl.Decimal) and values.dtype.is_float():
        # A number that is too long for the decimal makes Polars refuse the whole column.
        values = values.cast(pl.Float64)
        values = _where(values.abs() <= _largest(wanted), values)
    return values.cast(wanted, strict=False)


def _largest(dtype: pl.Decimal) -> float:
    """Return the largest float that a decimal type can hold."""
    largest = Fraction(10**dtype.precision - 1, 10**dtype.scale)
    nearest = float(largest)
    return nearest if nearest <= largest else math.nextafter(nearest, 0)


def _where(kept: pl.Series, values: pl.Series) -> pl.Series:
    return pl.select(pl.when(kept).then(values)).to_series().alias(values.name)


def _is_text(dtype: pl.DataType) -> bool:
    return isinstance(dtype, pl.String | pl.Categorical | pl.Enum | pl.Binary)


def _cast_texts(values: pl.Series, wanted: pl.DataType) -> pl.Series:
    if values.dtype == pl.Binary:  # Polars refuses the whole column for one value that is no text
        texts = pl.Series(values.name, [_decode(value) for value in values], dtype=pl.String)
        return texts.cast(wanted, strict=False)
    if wanted == pl.Binary:
        return values.cast(pl.String).cast(wanted)
    return values.cast(pl.String).cast(wanted, strict=False)


def _decode(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _cast_times(values: pl.Series, wanted: pl.DataType) -> pl.Series | None:
    """Return times of another unit or zone; a time without a zone is in UTC, as everywhere here."""
    there = values.dtype.time_zone if isinstance(values.dtype, pl.Datetime) else None
    here = wanted.time_zone if isinstance(wanted, pl.Datetime) else None
    if there == here:
        return _round_trip(values, wanted)
    if there is None or here is None:
        if (there or here) not in _UTC or pl.Date in (values.dtype, wanted):
            return None
        return _cast_times(values.dt.replace_time_zone(here), wanted)
    return _cast_times(values.dt.convert_time_zone(here), wanted)


def _read_texts(values: pl.Series, wanted: pl.DataType) -> pl.Series | None:
    if wanted == pl.Boolean:
        words = values.str.to_lowercase()
        return words.replace_strict(_WORDS, default=None, return_dtype=pl.Boolean)
    if isinstance(wanted, pl.Datetime):
        coarse = values.str.contains(r"\.\d{6}\d*[1-9]")
        return _where(~coarse, _round_trip(parse_times(values, wanted.time_zone), wanted))
    if wanted == pl.Date:
        return pl.select(
            pl.coalesce(values.str.to_date(form, strict=False) for form in _DATES)
        ).to_series()
    if wanted == pl.Time:
        return values.str.to_time("%H:%M:%S%.f", strict=False)
    try:
        cast = values.cast(wanted, strict=False)
    except pl.exceptions.PolarsError:
        return None
    if isinstance(wanted, pl.Decimal):
        return _where(_digits_kept(values, cast, wanted.scale), cast)
    if wanted.is_float():  # 1e400 is no infinity
        return _where(cast.is_finite() | ~values.str.contains(r"\d"), cast)
    return cast


def _digits_kept(texts: pl.Series, cast: pl.Series, scale: int) -> pl.Series:
    """Return which texts have no digit after the last one that a decimal keeps."""
    lost = texts.str.contains(rf"\.\d{{{scale}}}\d*[1-9]")
    powers = texts.str.contains("[eE]")
    nearest = texts.cast(pl.Float64, strict=False)
    return pl.select(
        pl.when(powers).then(cast.cast(pl.Float64) == nearest).otherwise(~lost)
    ).to_series()


def _fit_lists(values: pl.Series, wanted: pl.List | pl.Array, *, parse: bool) -> Fitted:
    """Fit the elements; a list with one that does not fit does not fit."""
    rows = pl.DataFrame({"list": values}).with_row_index("row")
    filled = rows.filter(pl.col("list").list.len() > 0).explode("list")
    inner = wanted.inner
    assert isinstance(inner, pl.DataType)
    elements = fit(filled["list"], inner, parse=parse)
    lists = (
        filled.select("row", fitted=elements.values, misfit=elements.misfits)
        .group_by("row", maintain_order=True)
        .agg("fitted", pl.col("misfit").any())
    )
    empty = pl.lit([], dtype=pl.List(inner))
    made = rows.join(lists, on="row", how="left", maintain_order="left").with_columns(
        fitted=pl.when(pl.col("list").list.len() == 0).then(empty).otherwise("fitted"),
        misfit=pl.col("misfit").fill_null(False),
    )
    if isinstance(wanted, pl.Array):
        size = pl.col("list").list.len() == wanted.size
        made = made.with_columns(pl.col("misfit") | ~size.fill_null(True))
    fitted = pl.when(~pl.col("misfit")).then("fitted").alias(values.name)
    return Fitted(values=made.select(fitted).to_series().cast(wanted), misfits=made["misfit"])


def _fit_structs(values: pl.Series, wanted: pl.Struct, *, parse: bool) -> Fitted:
    """Fit the fields by name; a struct without a field that is wanted does not fit."""
    assert isinstance(values.dtype, pl.Struct)
    theirs = {field.name for field in values.dtype.fields}
    misfits, fields = _flags(values, value=False), []
    for field in wanted.fields:
        if field.name not in theirs:
            fields.append(pl.Series(field.name, [None] * values.len(), dtype=field.dtype))
            misfits = misfits | values.is_not_null()
            continue
        dtype = field.dtype
        assert isinstance(dtype, pl.DataType)
        fitted = fit(values.struct.field(field.name), dtype, parse=parse)
        fields.append(fitted.values.alias(field.name))
        misfits = misfits | fitted.misfits
    whole = pl.DataFrame(fields).to_struct(values.name)
    return Fitted(values=_where(values.is_not_null() & ~misfits, whole), misfits=misfits)
