"""Python values that fit a type: what a user's class returns, as it comes back from Arrow.

A process may see a state that it left a moment ago, or one that was written to a file in between.
Law: both are equal, in value and in type; a value that would come back as another one is turned
into that one here, and one that could not be written is refused here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any

import polars as pl
import pyarrow as pa

from penstock.operators.rowwise.blame import mark_foreign

Fit = Callable[[Any], Any]
Record = dict[str, Any]
_DEPTH = (pl.List, pl.Struct, pl.Array)
_SAME = (pl.Float64(), pl.String(), pl.Boolean(), pl.Binary(), pl.Date(), pl.Datetime("us"))


def fit_record(schema: Mapping[str, pl.DataType], what: str) -> Callable[[Any], Record]:
    """Return a function that checks a dict against a schema and returns a fitting, new dict.

    Args:
        schema: The columns that the dict must have.
        what: What to call the dict in errors.

    >>> fit = fit_record({"n": pl.Float64(), "s": pl.String()}, "the state")
    >>> fit({"s": None, "n": 1})
    {'n': 1.0, 's': None}
    >>> fit({"n": "1", "s": "a"})
    Traceback (most recent call last):
    ...
    TypeError: the state has 'n' = '1', which is no Float64
    """
    fits = [(name, fit_value(dtype)) for name, dtype in schema.items()]
    width = len(fits)

    def fit(given: Any) -> Record:
        if isinstance(given, dict) and len(given) == width:
            try:
                return {
                    name: None if (value := given[name]) is None else fitting(value)
                    for name, fitting in fits
                }
            except Exception:  # said below, in words
                pass
        raise mark_foreign(_complaint(schema, what, given))

    return fit


def fit_value(dtype: pl.DataType) -> Fit:
    """Return a function from a value that is not None to the value as it comes back from Arrow."""
    if dtype.is_integer() and not dtype.is_nested():
        return _fit_integer(dtype)
    if dtype == pl.Datetime("us"):
        return _exactly(datetime, dtype, lambda value: value.tzinfo is None)
    known: dict[pl.DataType, Fit] = {
        pl.Float64(): _fit_float,
        pl.String(): _fit_text,
        pl.Boolean(): _exactly(bool, dtype),
        pl.Binary(): _exactly(bytes, dtype),
        pl.Date(): _exactly(date, dtype),
        pl.Duration("us"): _exactly(timedelta, dtype),
    }
    if dtype in known:
        return known[dtype]
    if isinstance(dtype, pl.List):
        return _fit_list(dtype)
    if isinstance(dtype, pl.Struct):
        return fit_record({f.name: _instance(f.dtype) for f in dtype.fields}, "a struct")

    def there_and_back(value: Any) -> Any:
        return pl.Series([value], dtype=dtype, strict=True).to_list()[0]

    return there_and_back


def to_column(name: str, values: Sequence[Any], dtype: pl.DataType) -> pl.Series:
    """Return fitting values as a column.

    >>> to_column("x", [[1], None, []], pl.List(pl.Int64())).to_list()
    [[1], None, []]
    """
    if not _is_nested(dtype) or not _arrow_knows(dtype):
        return pl.Series(name, values, dtype=dtype)
    # Polars makes a column of each list first, which takes ten times as long.
    arrow = pl.Series(dtype=dtype).to_arrow().type
    return pl.Series(name, pa.array(values, type=arrow), dtype=dtype)


def to_values(column: pl.Series) -> list[Any]:
    """Return a column as Python values."""
    if _is_nested(column.dtype) and _arrow_knows(column.dtype):
        values: list[Any] = column.to_arrow().to_pylist()
        return values
    return column.to_list()


def _is_nested(dtype: pl.DataType) -> bool:
    return isinstance(dtype, pl.List | pl.Struct)


def _arrow_knows(dtype: pl.DataType) -> bool:
    """Return whether values of a type are the same to Arrow's Python as to Polars'."""
    if isinstance(dtype, pl.List):
        return _arrow_knows(_instance(dtype.inner))
    if isinstance(dtype, pl.Struct):
        return all(_arrow_knows(_instance(f.dtype)) for f in dtype.fields)
    return dtype.is_integer() or dtype in _SAME


def copier(schema: Mapping[str, pl.DataType]) -> Callable[[Record], Record]:
    """Return a function that copies a fitting dict, so that nothing in it is shared."""
    if any(isinstance(dtype, _DEPTH) for dtype in schema.values()):
        return fit_record(schema, "the state")
    return dict.copy


def _instance(dtype: Any) -> pl.DataType:
    found: pl.DataType = dtype() if isinstance(dtype, type) else dtype
    return found


def _fit_integer(dtype: pl.DataType) -> Fit:
    name = str(dtype)
    bits = int(name.lstrip("UInt"))
    low, high = (0, (1 << bits) - 1) if name[0] == "U" else (-(1 << bits - 1), (1 << bits - 1) - 1)

    def fit(value: Any) -> int:
        if type(value) is not int:
            if isinstance(value, bool) or not hasattr(value, "__index__"):
                raise TypeError(value)
            value = value.__index__()
        if not low <= value <= high:
            raise OverflowError(value)
        found: int = value
        return found

    return fit


def _fit_float(value: Any) -> float:
    if type(value) is float:
        return value
    if isinstance(value, bool) or not isinstance(value, float | int):
        raise TypeError(value)
    return float(value)


def _fit_text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError(value)
    if not value.isascii():
        value.encode()  # half a surrogate pair has no bytes
    return value


def _fit_list(dtype: pl.List) -> Fit:
    inner = fit_value(_instance(dtype.inner))

    def fit(value: Any) -> list[Any]:
        if not isinstance(value, list | tuple):
            raise TypeError(value)
        return [None if item is None else inner(item) for item in value]

    return fit


def _exactly(kind: type, dtype: pl.DataType, good: Callable[[Any], bool] | None = None) -> Fit:
    def fit(value: Any) -> Any:
        if type(value) is not kind or not (good is None or good(value)):
            raise TypeError(f"no {dtype}")
        return value

    return fit


def _complaint(schema: Mapping[str, pl.DataType], what: str, given: Any) -> TypeError:
    if not isinstance(given, dict):
        return TypeError(f"{what} must be a dict; it is {type(given).__name__}")
    missing = [name for name in schema if name not in given]
    odd = [name for name in given if name not in schema]
    if missing or odd:
        parts = [f"lacks {', '.join(map(repr, missing))}"] if missing else []
        parts += [f"has {', '.join(map(repr, odd))}, which is not declared"] if odd else []
        return TypeError(f"{what} {' and '.join(parts)}; declared: {', '.join(schema) or 'none'}")
    for name, dtype in schema.items():
        try:
            if given[name] is not None:
                fit_value(dtype)(given[name])
        except Exception:  # whatever is wrong, this is the column
            return TypeError(f"{what} has {name!r} = {given[name]!r}, which is no {dtype}")
    return TypeError(f"{what} does not fit: {given!r}")
