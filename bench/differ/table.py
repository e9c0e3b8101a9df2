"""The rows that statements are evaluated on: columns of all types, full of edges."""

from __future__ import annotations

import random
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import polars as pl

ZONE = "America/New_York"
"""The zone of the zoned column and of DuckDB's session; its clocks change twice a year."""
_NAN, _INF = float("nan"), float("inf")
_STARTS = (datetime(2024, 1, 1), timedelta(minutes=7))


def _ends(bits: int, *, signed: bool) -> list[int]:
    least, most = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return [least, least + 1, most // 2, most - 1, most]


_SMALL = [0, 1, 2, 3, 7, 10, 42, 100]
_FLOATS = [
    0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 3.5, 0.1, 1e-7, 1e16, 1.25e20, -1e300, 123456.789,
    _NAN, _INF, -_INF, 2.0**53 + 2, 9.2e18, 99999999.5, 5e-324,
]  # fmt: skip
_D2 = ["0.00", "0.01", "-0.01", "1.00", "2.50", "-2.50", "3.50", "12.34", "99999999.99",
       "-99999999.99", "0.05", "1.15", "100.00"]  # fmt: skip
_D4 = ["0.0000", "0.0001", "-0.0001", "1.0000", "2.5000", "-2.5000", "0.1250", "2.3450",
       "99999999999999.9999", "-99999999999999.9999", "3.1416", "10.0000"]  # fmt: skip
_TEXTS = [
    "", " ", "a", "A", "abc", "ABC", "aBc", "a%c", "a_c", "a\\c", "a.c", "100%", "x\ny", "ß", "é",
    "e\u0301", "Ünï", "日本語", "🙂a🙂", "it's", "a-b-c", "--", "hello world", "  pad  ",
    "\ttab", "NULL", "o'neil mcdonald", "aaa", "İ",
]  # fmt: skip
_PATTERNS = ["%", "a%", "%c", "_", "a_c", "a\\%c", "a\\_c", "", "a", "%b%", "_b_", "A", "b", "-"]
_NUMERALS = [
    "0", "1", "-1", "12", " 12 ", "+5", "1e3", "1.5", "-2.5", "2.5", "1e400", "abc", "", "127",
    "128", "9223372036854775807", "9223372036854775808", "nan", "inf", "-Infinity", "0x1F",
    "1_000", "1,5", "true", "f", "yes", "2024-02-29", "2024-02-30", "2024-02-29 13:45:06", "1.",
    ".5", "- 1", "1e-2", "00012", "99999999.994", "99999999.996",
]  # fmt: skip
_DATES = [
    date(1970, 1, 1), date(1969, 12, 31), date(2000, 2, 29), date(2023, 12, 31), date(2024, 1, 31),
    date(2024, 2, 29), date(2024, 3, 10), date(1900, 2, 28), date(2100, 12, 31), date(4, 1, 1),
    date(9990, 12, 31), date(2021, 1, 3),
]  # fmt: skip
_TIMES = [
    datetime(1970, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime(2024, 2, 29, 13, 45, 6), datetime(2024, 3, 10, 1, 59, 59),
    datetime(2024, 3, 10, 2, 30), datetime(2024, 11, 3, 1, 30),
    datetime(2024, 1, 31, 23, 59, 59, 500000), datetime(2024, 12, 31, 0, 0, 0, 1),
    datetime(1900, 1, 1), datetime(2263, 1, 11, 23, 47, 16), datetime(2023, 1, 1, 12),
]  # fmt: skip
_INSTANTS = [
    datetime(2024, 3, 10, 6, 59, 59), datetime(2024, 3, 10, 7, 0), datetime(2024, 11, 3, 5, 30),
    datetime(2024, 11, 3, 6, 30), datetime(1970, 1, 1), datetime(2024, 7, 1, 3, 59, 59, 999999),
    datetime(2024, 1, 1, 4, 59, 59), datetime(2023, 12, 31, 23, 30),
]  # fmt: skip
_SPANS = [
    timedelta(0), timedelta(seconds=1), timedelta(seconds=-1), timedelta(days=1),
    timedelta(hours=36), timedelta(days=30), timedelta(days=31), timedelta(days=-400),
    timedelta(microseconds=1), timedelta(minutes=90, microseconds=500000),
]  # fmt: skip

_COLUMNS: dict[str, tuple[Any, list[Any]]] = {
    "i8": (pl.Int8, [*_SMALL, *_ends(8, signed=True), -1, -7]),
    "i16": (pl.Int16, [*_SMALL, *_ends(16, signed=True), -1, -7]),
    "i32": (pl.Int32, [*_SMALL, *_ends(32, signed=True), -1, -7]),
    "i64": (pl.Int64, [*_SMALL, *_ends(64, signed=True), -1, -7]),
    "u8": (pl.UInt8, [*_SMALL, *_ends(8, signed=False)]),
    "u16": (pl.UInt16, [*_SMALL, *_ends(16, signed=False)]),
    "u32": (pl.UInt32, [*_SMALL, *_ends(32, signed=False)]),
    "u64": (pl.UInt64, [*_SMALL, *_ends(64, signed=False)]),
    "n": (pl.Int32, [*range(-3, 9)]),
    "f32": (pl.Float32, [0.0, -0.0, 1.0, -1.5, 2.5, 0.1, 1e10, 3e38, _NAN, _INF, -_INF]),
    "f64": (pl.Float64, _FLOATS),
    "d2": (pl.Decimal(10, 2), [Decimal(text) for text in _D2]),
    "d4": (pl.Decimal(18, 4), [Decimal(text) for text in _D4]),
    "s": (pl.String, _TEXTS),
    "w": (pl.String, ["a", "b", "ab", "abc", "x", "", "é", "a-b", "B", " c"]),
    "p": (pl.String, _PATTERNS),
    "m": (pl.String, _NUMERALS),
    "b": (pl.Boolean, [True, False]),
    "c": (pl.Boolean, [True, False]),
    "day": (pl.Date, _DATES),
    "ts": (pl.Datetime("us"), _TIMES),
    "tz": (pl.Datetime("us", "UTC"), _INSTANTS),
    "span": (pl.Duration("us"), _SPANS),
}
KINDS: dict[str, tuple[str, ...]] = {
    "int": ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "n"),
    "bits": ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "n"),
    "count": ("n",),
    "bare": ("f32", "f64"),
    "float": ("f32", "f64"),
    "decimal": ("d2", "d4"),
    "cents": ("d2",),
    "text": ("s", "w"),
    "pattern": ("p",),
    "numeral": ("m",),
    "bool": ("b", "c"),
    "date": ("day",),
    "time": ("ts",),
    "zoned": ("tz",),
    "span": ("span",),
}
"""The columns of each kind of value."""


def rows(height: int = 48, seed: int = 0) -> pl.DataFrame:
    """Return the rows; every value of every column is there, and a fifth of the rest is null.

    ``id`` is a row's number, ``k`` a key of a few values, ``moment`` its event time.
    """
    rng = random.Random(seed)
    start, step = _STARTS
    made: dict[str, pl.Series] = {
        "id": pl.Series(range(height), dtype=pl.Int32),
        "k": pl.Series([rng.choice(["a", "b", "c"]) for _ in range(height)]),
        "moment": pl.Series([start + step * i for i in range(height)], dtype=pl.Datetime("us")),
    }
    for name, (dtype, edges) in _COLUMNS.items():
        filled = [None if rng.random() < 0.2 else rng.choice(edges) for _ in range(height)]
        values = [*edges, None, *filled][:height]
        rng.shuffle(values)
        made[name] = pl.Series(values, dtype=dtype)
    return pl.DataFrame(made).with_columns(pl.col("tz").dt.convert_time_zone(ZONE))
