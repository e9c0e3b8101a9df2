"""Exact casts: every pair of types, with their extreme values, beside plain Python."""

from __future__ import annotations

import math
import struct
from datetime import UTC, date, datetime, time, timedelta
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sources.exact import fit

REFUSED = object()
PARIS = ZoneInfo("Europe/Paris")
BITS: dict[type[pl.DataType], int] = {
    pl.Int8: 7,
    pl.Int16: 15,
    pl.Int32: 31,
    pl.Int64: 63,
    pl.Int128: 127,
}
UNSIGNED: dict[type[pl.DataType], int] = {pl.UInt8: 8, pl.UInt16: 16, pl.UInt32: 32, pl.UInt64: 64}
LIMITS = {kind: (-(2**n), 2**n - 1) for kind, n in BITS.items()} | {
    kind: (0, 2**n - 1) for kind, n in UNSIGNED.items()
}
EDGES = [
    *[
        sign * (2**n + step)
        for n in (0, 7, 8, 15, 16, 24, 31, 32, 53, 62, 63, 64, 100, 126)
        for sign in (-1, 1)
        for step in (-1, 0, 1)
    ],
    2**127 - 1,
    -(2**127),
    10**8,
    10**8 - 1,
    10**15,
    10**17,
    1_700_000_000_000,
]
FLOATS = [
    0.0,
    -0.0,
    0.5,
    2.9,
    -2.9,
    0.1,
    0.3,
    0.1 + 0.2,
    12.34,
    2.675,
    1e-5,
    1e22,
    1e300,
    -1e300,
    5e-324,
    math.inf,
    -math.inf,
    math.nan,
    2.0**24 + 1,
    2.0**53,
    2.0**63,
    -(2.0**63),
    2.0**64,
    255.0,
    99999999.99,
    99999999.999,
    9.99e37,
]
DECIMALS = [
    "0",
    "0.10",
    "-0.01",
    "12.34",
    "99999999.99",
    "-99999999.99",
    "1.00",
    "255.00",
    "300.50",
]
TIMES = [
    datetime(2024, 2, 29),
    datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime(2024, 7, 1, 12, 30, 0, 1000),
    datetime(2024, 7, 1, 12, 30, 0, 1),
    datetime(1, 1, 1),
    datetime(9999, 12, 31, 23, 59, 59, 999999),
]
SPANS = [
    timedelta(0),
    timedelta(microseconds=1),
    timedelta(milliseconds=-7),
    timedelta(days=200_000),
]
TEXTS = ["", "a", "ä", "1", "2.9", "true", "2024-01-01", "2024-01-01 00:00:00"]

COLUMNS: dict[str, pl.Series] = {
    **{
        kind.__name__: pl.Series([x for x in EDGES if low <= x <= high], dtype=kind)
        for kind, (low, high) in LIMITS.items()
    },
    "Float64": pl.Series(FLOATS, dtype=pl.Float64),
    "Float32": pl.Series(FLOATS, dtype=pl.Float64).cast(pl.Float32),
    "Decimal(10,2)": pl.Series([Decimal(x) for x in DECIMALS], dtype=pl.Decimal(10, 2)),
    "Decimal(38,0)": pl.Series([10**37, 5, -1, 2**53 + 1], dtype=pl.Decimal(38, 0)),
    "Decimal(12,4)": pl.Series([Decimal("1.2345"), Decimal("1.2300")], dtype=pl.Decimal(12, 4)),
    "Boolean": pl.Series([True, False]),
    "String": pl.Series(TEXTS),
    "Categorical": pl.Series(["a", "ä"], dtype=pl.Categorical),
    "Enum": pl.Series(["a", "z"], dtype=pl.Enum(["a", "z"])),
    "Binary": pl.Series([b"a", b"\xff", b""]),
    "Date": pl.Series([date(2024, 2, 29), date(1, 1, 1), date(9999, 12, 31)]),
    "Time": pl.Series([time(1, 2, 3, 4)]),
    "Datetime(ms)": pl.Series([t.replace(microsecond=0) for t in TIMES], dtype=pl.Datetime("ms")),
    "Datetime(us)": pl.Series(TIMES, dtype=pl.Datetime("us")),
    "Datetime(ns)": pl.Series([1, 1000, 10**15, -1, 10**15 + 10**6]).cast(pl.Datetime("ns")),
    "Datetime(us,UTC)": pl.Series(TIMES, dtype=pl.Datetime("us")).dt.replace_time_zone("UTC"),
    "Datetime(us,Paris)": pl.Series(TIMES[:4], dtype=pl.Datetime("us"))
    .dt.replace_time_zone("UTC")
    .dt.convert_time_zone("Europe/Paris"),
    "Duration(ms)": pl.Series([timedelta(0), timedelta(days=9)], dtype=pl.Duration("ms")),
    "Duration(us)": pl.Series(SPANS, dtype=pl.Duration("us")),
    "Duration(ns)": pl.Series([1, 1000, 10**15, -1]).cast(pl.Duration("ns")),
}
NANOS = {"ns": 1, "us": 1000, "ms": 10**6}


def exact(value: Any, found: pl.DataType, wanted: pl.DataType) -> Any:
    """Return a value as another type has it, or that it has none."""
    if found == wanted:
        return value
    if found.is_numeric() and wanted.is_numeric():
        return number(value, found, wanted)
    if isinstance(found, pl.Datetime | pl.Date) and isinstance(wanted, pl.Datetime | pl.Date):
        return instant(value, found, wanted)
    if isinstance(found, pl.Duration) and isinstance(wanted, pl.Duration):
        return units(value, wanted.time_unit)
    if found.is_integer() and wanted == pl.String:
        return str(value)
    return text(value, wanted)


def number(value: Any, found: pl.DataType, wanted: pl.DataType) -> Any:
    if wanted.is_integer():
        low, high = LIMITS[type(wanted)]
        whole = isinstance(value, int) or (math.isfinite(value) and value == int(value))
        return int(value) if whole and low <= value <= high else REFUSED
    if isinstance(wanted, pl.Decimal):
        if not math.isfinite(value):
            return REFUSED
        near = nearest_decimal(Decimal(value), wanted.scale)
        if len(near.as_tuple().digits) > wanted.precision:
            return REFUSED
        back = nearest_float(near, found) if isinstance(value, float) else near
        return near if back == value else REFUSED
    return to_float(value, found, wanted)


def to_float(value: Any, found: pl.DataType, wanted: pl.DataType) -> Any:
    near = nearest_float(value, wanted)
    if isinstance(value, Decimal):
        assert isinstance(found, pl.Decimal)
        fits = math.isfinite(near) and nearest_decimal(Decimal(near), found.scale) == value
        return near if fits else REFUSED
    return near if near == value or value != value else REFUSED


def nearest_float(value: Any, dtype: pl.DataType) -> float:
    try:
        near = float(value)
        return near if dtype == pl.Float64 else struct.unpack("f", struct.pack("f", near))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def nearest_decimal(value: Decimal, scale: int) -> Decimal:
    return value.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_EVEN, Context(prec=400))


def instant(value: Any, found: pl.DataType, wanted: pl.DataType) -> Any:
    """Times are nanoseconds since 1970 here; without a zone they are in UTC."""
    there, here = zone_of(found), zone_of(wanted)
    if (there is None) != (here is None):
        named = there or here
        if named != "UTC" or pl.Date in (found, wanted):
            return REFUSED
    if wanted == pl.Date:
        return value if value % (86_400 * 10**9) == 0 and there is None else REFUSED
    assert isinstance(wanted, pl.Datetime)
    return units(value, wanted.time_unit)


def zone_of(dtype: pl.DataType) -> str | None:
    return dtype.time_zone if isinstance(dtype, pl.Datetime) else None


def units(nanos: int, unit: str) -> Any:
    whole, rest = divmod(nanos, NANOS[unit])
    return nanos if not rest and -(2**63) <= whole < 2**63 else REFUSED


def text(value: Any, wanted: pl.DataType) -> Any:
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            return REFUSED
    if not isinstance(value, str):
        return REFUSED
    if isinstance(wanted, pl.Enum):
        return value if value in wanted.categories else REFUSED
    if wanted == pl.Binary:
        return value.encode()
    return value if wanted in (pl.String, pl.Categorical) else REFUSED


def plain(values: pl.Series) -> list[Any]:
    """Return values as Python knows them, times and durations in nanoseconds."""
    if isinstance(values.dtype, pl.Datetime | pl.Duration):
        factor = NANOS[values.dtype.time_unit]
        return [None if v is None else v * factor for v in values.to_physical().to_list()]
    if values.dtype == pl.Date:
        return [None if v is None else v * 86_400 * 10**9 for v in values.to_physical().to_list()]
    return values.to_list()


@pytest.mark.parametrize("wanted", COLUMNS)
@pytest.mark.parametrize("found", COLUMNS)
def test_every_pair_of_types(found: str, wanted: str) -> None:
    column, dtype = COLUMNS[found].extend_constant(None, 1), COLUMNS[wanted].dtype
    check(column, dtype)


def check(column: pl.Series, dtype: pl.DataType) -> None:
    fitted = fit(column, dtype)
    assert fitted.values.dtype == dtype
    given = plain(column)
    expected = [None if v is None else exact(v, column.dtype, dtype) for v in given]
    misfits = [v is REFUSED for v in expected]
    odd = [v for v, a, b in zip(given, fitted.misfits, misfits, strict=True) if a != b]
    assert fitted.misfits.to_list() == misfits, f"{column.dtype} to {dtype}: {odd}"
    shown = [None if v is REFUSED else v for v in expected]
    assert same(plain(fitted.values), shown), f"{column.dtype} to {dtype}"


def same(left: list[Any], right: list[Any]) -> bool:
    return all(a == b or (a != a and b != b) for a, b in zip(left, right, strict=True))


@given(st.lists(st.floats() | st.decimals(-(10**8), 10**8, places=2).map(float), min_size=1))
def test_floats(values: list[float]) -> None:
    for dtype in (pl.Int64(), pl.UInt8(), pl.Float32(), pl.Decimal(10, 2)):
        check(pl.Series(values, dtype=pl.Float64), dtype)


@given(st.lists(st.decimals(-(10**8) + 1, 10**8 - 1, places=2), min_size=1))
def test_decimals(values: list[Decimal]) -> None:
    for dtype in (pl.Int64(), pl.Float64(), pl.Float32(), pl.Decimal(38, 1), pl.Decimal(9, 4)):
        check(pl.Series(values, dtype=pl.Decimal(10, 2)), dtype)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_integers(values: list[int]) -> None:
    for dtype in (pl.Int32(), pl.UInt64(), pl.Float32(), pl.Float64(), pl.Decimal(20, 3)):
        check(pl.Series(values, dtype=pl.Int64), dtype)


NESTED: dict[str, tuple[pl.Series, pl.DataType, list[Any]]] = {
    "list": (
        pl.Series([[1.0, 2.9], [], None, [None], [3.0]]),
        pl.List(pl.Int64()),
        [REFUSED, [], None, [None], [3]],
    ),
    "array": (
        pl.Series([[1.0], [], None, [2.5]]),
        pl.Array(pl.Int8(), 1),
        [[1], REFUSED, None, REFUSED],
    ),
    "lists": (pl.Series([[[1.0]], [[2.5], []]]), pl.List(pl.List(pl.Int8())), [[[1]], REFUSED]),
    "struct": (
        pl.Series([{"a": 1.0, "b": "x"}, None, {"a": 2.5, "b": "y"}, {"a": None, "b": None}]),
        pl.Struct({"a": pl.Int64(), "b": pl.String()}),
        [{"a": 1, "b": "x"}, None, REFUSED, {"a": None, "b": None}],
    ),
    "list of structs": (
        pl.Series([[{"a": 1.0}], [{"a": 1.5}]]),
        pl.List(pl.Struct({"a": pl.Int64()})),
        [[{"a": 1}], REFUSED],
    ),
    "missing field": (pl.Series([{"a": 1}, None]), pl.Struct({"z": pl.Int64()}), [REFUSED, None]),
    "one field more": (pl.Series([{"a": 1, "b": 2}]), pl.Struct({"a": pl.Int8()}), [{"a": 1}]),
}


@pytest.mark.parametrize("name", NESTED)
def test_values_inside(name: str) -> None:
    values, dtype, expected = NESTED[name]
    fitted = fit(values, dtype)
    assert fitted.misfits.to_list() == [v is REFUSED for v in expected]
    assert fitted.values.to_list() == [None if v is REFUSED else v for v in expected]


PARSED = [
    (pl.Int64(), {"7": 7, "-7": -7, "2.9": REFUSED, "9223372036854775808": REFUSED, "": REFUSED}),
    (pl.UInt8(), {"255": 255, "256": REFUSED, "-1": REFUSED}),
    (pl.Float64(), {"0.1": 0.1, "1e3": 1000.0, "1e400": REFUSED, "inf": math.inf, "x": REFUSED}),
    (
        pl.Decimal(10, 2),
        {
            "1.5": Decimal("1.50"),
            "1.230": Decimal("1.23"),
            "1.239": REFUSED,
            "1e3": Decimal(1000),
            "1e-3": REFUSED,
            "99999999999": REFUSED,
        },
    ),
    (pl.Boolean(), {"true": True, "FALSE": False, "1": True, "2": REFUSED}),
    (
        pl.Datetime("us"),
        {
            "2024-01-01T00:00:00.5": datetime(2024, 1, 1, 0, 0, 0, 500_000),
            "2024-01-01": datetime(2024, 1, 1),
            "1704067200": REFUSED,
            "2024-01-01T00:00:00.1234567": REFUSED,
            "2024-01-01T00:00:00.1234560": datetime(2024, 1, 1, 0, 0, 0, 123_456),
        },
    ),
    (
        pl.Datetime("ms"),
        {
            "2024-01-01T00:00:00.5": datetime(2024, 1, 1, 0, 0, 0, 500_000),
            "2024-01-01T00:00:00.0005": REFUSED,
        },
    ),
    (pl.Date(), {"2024-02-29": date(2024, 2, 29), "2023-02-29": REFUSED}),
]


@pytest.mark.parametrize(("dtype", "texts"), PARSED, ids=[str(dtype) for dtype, _ in PARSED])
def test_texts_of_a_text_format_are_read(dtype: pl.DataType, texts: dict[str, Any]) -> None:
    fitted = fit(pl.Series([*texts, None]), dtype, parse=True)
    expected = [*texts.values(), None]
    assert fitted.misfits.to_list() == [v is REFUSED for v in expected]
    assert fitted.values.to_list() == [None if v is REFUSED else v for v in expected]


def test_zoned_python_times_are_what_the_oracle_takes_them_for() -> None:
    zoned = COLUMNS["Datetime(us,Paris)"]
    assert zoned[0] == datetime(2024, 2, 29, 1, tzinfo=PARIS) == TIMES[0].replace(tzinfo=UTC)
