"""What SQL text means, value by value: in SQL, and in the texts of the Python interface."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

import penstock as ps
from penstock.query.expressions import ExpressionProblem, infer_row_wise, parse
from penstock.testing.streams import TestStream

MOST, LEAST = 2**63 - 1, -(2**63)


def value(text: str, dtypes: dict[str, Any] | None = None, **row: Any) -> Any:
    """Return what a text gives for one row."""
    frame = pl.DataFrame({name: [v] for name, v in row.items()}, schema_overrides=dtypes)
    expression = parse(text, dict(frame.schema))
    infer_row_wise(expression, dict(frame.schema))
    return frame.select(expression.alias("v"))["v"][0]


LIKES = [
    ("a%c", "a%c", True), ("abc", "a%c", True), ("abc", "a\\%c", False), ("a%c", "a\\%c", True),
    ("abc", "a_c", True), ("abc", "a\\_c", False), ("a_c", "a\\_c", True), ("a\\c", "a\\\\c", True),
    ("a\nc", "a_c", True), ("a\nc", "a%", True), ("a\nc", "%c", True), ("x\na\nc", "a%", False),
    ("a.c", "a.c", True), ("abc", "a.c", False), ("a+c", "a+_", True), ("[a](b)", "[a](_)", True),
    ("", "", True), ("", "%", True), ("", "_", False), ("üß", "__", True), ("ü", "Ü", False),
    ("abc", "abc", True), ("abc", "ab", False), ("a^$|c", "%^$|%", True), ("ab", "%%b", True),
]  # fmt: skip


@pytest.mark.parametrize(("text", "pattern", "expected"), LIKES)
def test_like(text: str, pattern: str, expected: bool) -> None:
    quoted = pattern.replace("'", "''")
    assert value(f"s LIKE '{quoted}'", s=text) is expected
    assert value(f"s NOT LIKE '{quoted}'", s=text) is not expected
    assert value("s LIKE p", s=text, p=pattern) is expected
    assert value(f"s LIKE '{pattern.replace(chr(92), '!')}' ESCAPE '!'", s=text.replace("\\", "!")
                 ) is expected  # fmt: skip
    assert value(f"s ILIKE '{pattern.upper()}'", s=text) is (expected or text == "ü")


def test_like_of_null_and_odd_escapes() -> None:
    text: dict[str, Any] = {"s": pl.String, "p": pl.String}
    assert value("s LIKE 'a%'", text, s=None) is None
    assert value("s NOT LIKE 'a'", text, s=None) is None
    assert value("s LIKE p", text, s="a", p=None) is None
    assert value("s LIKE 'a\\%' ESCAPE ''", s="a\\b") is True
    with pytest.raises(ExpressionProblem, match="a LIKE pattern ends with its escape"):
        value("s LIKE 'a\\'", s="a")
    with pytest.raises(ExpressionProblem, match="ESCAPE takes one character or none"):
        value("s LIKE 'a' ESCAPE 'xy'", s="a")


@pytest.mark.parametrize(
    ("text", "part", "expected"),
    [("abc", "c", 3), ("abc", "x", 0), ("abc", "", 1), ("", "", 1), ("", "a", 0), ("üaü", "a", 2),
     ("a.c", ".", 2), (None, "a", None), ("a", None, None), (None, "", None), ("aXbX", "X", 2)],
)  # fmt: skip
def test_the_place_of_a_text(text: str | None, part: str | None, expected: int | None) -> None:
    types: dict[str, Any] = {"s": pl.String, "p": pl.String}
    assert value("strpos(s, p)", types, s=text, p=part) == expected
    assert value("position(p IN s)", types, s=text, p=part) == expected
    if part is not None:
        assert value(f"strpos(s, '{part}')", types, s=text) == expected


INTEGERS = [pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("text", ["a + b", "a - b", "a * b", "-a", "abs(a)", "a // b", "a % b"])
def test_integers_are_exact_or_refused(text: str, dtype: Any) -> None:
    least, most = (int(pl.select(x).item()) for x in (dtype.min(), dtype.max()))
    near = (least, least + 1, -2, -1, 0, 1, 2, most // 2, most - 1, most)
    edges = sorted({n for n in near if least <= n <= most})
    given: dict[str, Any] = {"a": dtype, "b": dtype}
    room = parse(text, {"a": dtype(), "b": dtype()})
    result = infer_row_wise(room, {"a": dtype(), "b": dtype()})
    low, high = (int(pl.select(x).item()) for x in (result.min(), result.max()))  # type: ignore[attr-defined]
    for a in edges:
        for b in edges:
            exact = _exactly(text, a, b)
            if exact is not None and low <= exact <= high:
                assert value(text, given, a=a, b=b) == exact
            else:
                with pytest.raises(pl.exceptions.PolarsError):
                    value(text, given, a=a, b=b)


def _exactly(text: str, a: int, b: int) -> int | None:
    if text == "a // b":
        return None if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    if text == "a % b":
        return None if b == 0 else abs(a) % abs(b) * (-1 if a < 0 else 1)
    found: int = {"a + b": a + b, "a - b": a - b, "a * b": a * b, "-a": -a, "abs(a)": abs(a)}[text]
    return found


def test_a_row_that_overflows_is_a_dead_letter_with_its_reason() -> None:
    rows = [{"a": n, "ts": datetime(2024, 1, 1, 0, 0, i)} for i, n in enumerate((1, MOST, 3, 0))]
    stream = ps.from_rows([], schema={"a": pl.Int64, "ts": pl.Datetime}, time="ts", name="t")
    query = ps.sql("SELECT a + 1 AS more, 12 % a AS rest FROM t", t=stream)
    with TestStream(query.write_memory()) as run:
        run.add(rows)
        run.finish()
        run.expect([{"more": 2, "rest": 0}, {"more": 4, "rest": 0}])
        run.expect_reference()
        letters = run.dead_letters()
        assert run.counts()["refused"] == 2
    reasons = sorted(letters["reason"])
    assert "9223372036854775808" in reasons[1] or "9223372036854775808" in reasons[0]
    assert any("division by zero" in reason for reason in reasons)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CASE WHEN a = 0 THEN -1 ELSE 12 % a END", -1),
        ("CASE WHEN a <> 0 THEN 12 % a END", None),
        ("CASE a WHEN 0 THEN 0 ELSE 12 // a END", 0),
        ("CASE WHEN m > 5 THEN 1 WHEN m + 1 > 0 THEN 2 END", 1),
        ("CASE WHEN m < 5 THEN m * 2 ELSE m END", MOST),
        ("CASE WHEN s ~ '^[0-9]+$' THEN CAST(s AS BIGINT) END", None),
        ("coalesce(a, 12 % a)", 0),
        ("a <> 0 AND 12 % a > 1", False),
        ("a = 0 OR 12 % a > 1", True),
        ("a = 0 OR CASE WHEN a > 1 THEN m + 1 > 1 ELSE m + 1 > 2 END", True),
        ("if(a = 0, 7, 12 % a)", 7),
        ("CASE WHEN a = 0 THEN 1 ELSE CASE WHEN m > 0 THEN m + 1 END END", 1),
    ],
)
def test_what_is_not_chosen_cannot_fail(text: str, expected: Any) -> None:
    assert value(text, a=0, m=MOST, s="x1") == expected


def test_division() -> None:
    assert value("a / b", a=7, b=2) == 3.5
    assert value("a / b", a=7, b=0) == float("inf")
    assert value("100.0 * a / b", a=1, b=3) == pytest.approx(100 / 3)
    assert value("100.0 * a / b", a=1, b=0) == float("inf")
    assert value("-7 // 2", a=1) == -3
    assert value("a % 3", a=-7) == -1


@pytest.mark.parametrize(
    ("text", "expected"),
    [("round(2.5)", 3), ("round(-2.5)", -3), ("round(0.125, 2)", Decimal("0.13")),
     ("round(d)", 3), ("round(d, 1)", Decimal("2.5")), ("round(f)", 3.0), ("round(-f)", -3.0),
     ("round(i, 1)", 25), ("round(i, -1)", 30), ("round(-i, -1)", -30), ("round(g, 2)", 1.01)],
)  # fmt: skip
def test_round_takes_halves_away_from_zero(text: str, expected: Any) -> None:
    assert value(text, d=Decimal("2.50"), f=2.5, i=25, g=1.005 + 1e-9) == expected


CASTS: list[tuple[str, Any, Any]] = [
    ("CAST(v AS INT)", 2.5, 2), ("CAST(v AS INT)", 3.5, 4), ("CAST(v AS INT)", -2.5, -2),
    ("CAST(v AS INT)", 2.7, 3), ("CAST(v AS INT)", Decimal("2.50"), 3),
    ("CAST(v AS INT)", Decimal("-2.50"), -3), ("CAST(v AS INT)", " 12 ", 12),
    ("CAST(v AS SMALLINT)", 40000, "fails"), ("CAST(v AS BIGINT)", 1e20, "fails"),
    ("CAST(v AS BIGINT)", float("nan"), "fails"), ("CAST(v AS INT)", "", "fails"),
    ("CAST(v AS INT)", "2.5", "fails"), ("CAST(v AS DOUBLE PRECISION)", " 1.5", 1.5),
    ("CAST(v AS BOOLEAN)", "Yes", True), ("CAST(v AS BOOLEAN)", "f", False),
    ("CAST(v AS BOOLEAN)", "maybe", "fails"), ("CAST(v AS DATE)", "2024-02-29", date(2024, 2, 29)),
    ("CAST(v AS DATE)", "2023-02-29", "fails"), ("CAST(v AS DATE)", "soon", "fails"),
    ("CAST(v AS TIMESTAMP)", "2024-02-29", datetime(2024, 2, 29)),
    ("CAST(v AS TIMESTAMP)", "2024-02-29 10:05", datetime(2024, 2, 29, 10, 5)),
    ("CAST(v AS TIMESTAMP)", "2024-02-29T10:05:06", datetime(2024, 2, 29, 10, 5, 6)),
    ("CAST(v AS TIMESTAMP)", "2024-02-29 10:05:06.5", datetime(2024, 2, 29, 10, 5, 6, 500000)),
    ("CAST(v AS TIMESTAMP)", "2024-02-29 25:05:06", "fails"),
    ("CAST(v AS DECIMAL(5, 2))", Decimal("2.345"), Decimal("2.35")),
    ("CAST(v AS DECIMAL(5, 2))", 0.125, Decimal("0.13")),
    ("CAST(v AS DECIMAL(5, 2))", 12345, "fails"),
    ("CAST(v AS VARCHAR)", datetime(2024, 1, 1, 10), "2024-01-01 10:00:00"),
    ("CAST(v AS VARCHAR)", datetime(2024, 1, 1, 10, 0, 0, 120000), "2024-01-01 10:00:00.12"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "given", "expected"), CASTS)
def test_casts(text: str, given: Any, expected: Any) -> None:
    if expected == "fails":
        with pytest.raises(pl.exceptions.PolarsError):
            value(text, v=given)
        assert value(text.replace("CAST", "TRY_CAST"), v=given) is None
    else:
        assert value(text, v=given) == expected
        assert value(text.replace("CAST", "TRY_CAST"), v=given) == expected


def test_dates_count_days() -> None:
    days: dict[str, Any] = {
        "d": date(2024, 1, 31),
        "e": date(2024, 2, 2),
        "t": datetime(2024, 1, 31, 10),
    }
    assert value("e - d", **days) == 2
    assert value("d + 3", **days) == date(2024, 2, 3)
    assert value("3 + d", **days) == date(2024, 2, 3)
    assert value("d - 31", **days) == date(2023, 12, 31)
    assert value("d + INTERVAL '1 hour'", **days) == datetime(2024, 1, 31, 1)
    assert value("d + INTERVAL '1 month'", **days) == datetime(2024, 2, 29)
    assert value("INTERVAL '1 month' + t", **days) == datetime(2024, 2, 29, 10)
    assert value("t - INTERVAL '1 month'", **days) == datetime(2023, 12, 31, 10)
    assert value("d + (t - d)", **days) == datetime(2024, 1, 31, 10)
    assert value("t - d > INTERVAL '9 hours'", **days) is True
    assert value("t - TIMESTAMP '2024-01-30'", **days) == timedelta(days=1, hours=10)


def test_a_quoted_text_has_the_type_of_what_it_is_compared_with() -> None:
    row: dict[str, Any] = {"d": date(2024, 1, 31), "t": datetime(2024, 1, 31, 10), "n": 3, "x": 1.5}
    assert value("d = '2024-01-31'", **row) is True
    assert value("t BETWEEN '2024-01-31 09:00' AND '2024-01-31 11:00:00'", **row) is True
    assert value("n = '3' AND x > '1'", **row) is True
    assert value("t - TIMESTAMP '2024-01-31' = '10 hours'", **row) is True
    with pytest.raises(ExpressionProblem):
        value("n = 'three'", **row)


def test_greatest_and_least() -> None:
    nan = float("nan")
    assert value("greatest(a, b, c)", {"c": pl.Int64}, a=1, b=3, c=None) == 3
    assert value("least(a, b, c)", {"c": pl.Int64}, a=1, b=3, c=None) == 1
    assert str(value("greatest(a, b)", a=nan, b=1.0)) == "nan"
    assert value("least(a, b)", a=nan, b=1.0) == 1.0
    assert value("greatest(a, a)", {"a": pl.Int64}, a=None) is None
    assert value("greatest(a, 2.5)", a=1) == Decimal("2.5")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("n IN (1, NULL)", None), ("n IN (3, NULL)", True), ("n NOT IN (1, NULL)", None),
     ("z IN (1, 2)", None), ("z = z", None), ("z IS NOT DISTINCT FROM NULL", True),
     ("nullif(n, 3)", None), ("nullif(n, z)", 3), ("nullif(z, 1)", None), ("z IS NULL", True),
     ("(z > 1) IS NOT TRUE", True), ("(z > 1) IS UNKNOWN", True), ("n BETWEEN z AND 2", False),
     ("n BETWEEN 2 AND z", None), ("f = f", True), ("f > 1e308", True), ("f IN (f)", True),
     ("n IN (1, 2, 3, 4, 5, 6)", True), ("z IN (1, 2, 3, 4, 5, 6)", None),
     ("n > 4 OR z > 1", None)],
)  # fmt: skip
def test_null_and_nan(text: str, expected: Any) -> None:
    assert value(text, {"z": pl.Int64}, n=3, z=None, f=float("nan")) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("d * d", "1.3225"), ("d * 0.001", "0.00115"), ("round(d, 1)", "1.2"), ("round(d, -1)", "0"),
     ("round(e, -1)", "20"), ("ceil(d)", "2"), ("floor(0 - d)", "-2"), ("d + 1", "2.15")],
)  # fmt: skip
def test_decimals_keep_the_places_that_they_need(text: str, expected: str) -> None:
    assert str(value(text, d=Decimal("1.15"), e=Decimal("15.00"))) == expected


@pytest.mark.parametrize("text", ["x / 3", "x / 1.25", "x / 2.5e0", "n / 10", "round(x, -1) / 7"])
def test_a_quotient_does_not_depend_on_the_batch(text: str) -> None:
    frame = pl.DataFrame({"x": [1.0, 3.0, 7.0, 0.1, 5.6], "n": [1, 3, 7, 13, 56]})
    made = parse(text, dict(frame.schema))
    infer_row_wise(made, dict(frame.schema))
    whole = frame.select(v=made)["v"].to_list()
    assert whole == [row.select(v=made)["v"].item() for row in frame.iter_slices(1)]
    if text == "x / 3":
        assert whole == [x / 3 for x in frame["x"]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("month(t) * 100 + day(t)", 1231), ("length(s) - 5", -2), ("hour(t) * 3600", 36000),
     ("extract(minute from t) * 60", 1800), ("bit_count(n) - 10", -8),
     ("date_part('epoch', f)", 64092211200.0)],
)  # fmt: skip
def test_what_counts_has_room(text: str, expected: Any) -> None:
    row: dict[str, Any] = {
        "t": datetime(2024, 12, 31, 10, 30),
        "f": datetime(4001, 1, 1),
        "s": "abc",
        "n": 3,
    }
    assert value(text, **row) == expected


PARTS: list[tuple[str, Any]] = [
    ("left(s, n)", "ab"), ("left(s, -1)", "ab"), ("left(s, -9)", ""), ("left(s, z)", None),
    ("right(s, n)", "bc"), ("right(s, 9)", "abc"), ("right(s, -1)", "bc"), ("right(s, z)", None),
    ("right(o, 0)", None), ("substr(s, n)", "bc"), ("substr(s, 0, 2)", "a"), ("substr(s, z)", None),
    ("substr(s, -1)", "abc"), ("substr(s, 1, z)", None), ("substr(s, n - 3, 3)", "a"),
    ("substring(s FROM 2 FOR 1)", "b"), ("split_part(s, 'b', n)", "c"),
    ("split_part(s, o, 1)", None),
    ("split_part(s, '', 1)", "abc"), ("split_part(s, 'b', -1)", "c"), ("split_part(s, 'b', 9)", ""),
    ("replace(s, p, 'xy')", "axyc"), ("replace(s, o, 'x')", None), ("replace(s, '', 'x')", "abc"),
    ("replace('aba', p, s)", "aabca"), ("trim(w)", "\tb"), ("ltrim(w)", "\tb "),
    ("rtrim(w)", " \tb"),
    ("trim(BOTH p FROM 'bab')", "a"), ("ltrim(s, o)", None),
    ("array_contains(ARRAY[s, p], 'b')", True),
    ("array_contains(ARRAY[s, o], o)", None), ("array_sum(ARRAY[n, 3])", 5),
    ("array_sum(ARRAY[z, z])", None), ("'x' || t", "x2024-01-01 10:00:00"),
    ("concat(t, z, f)", "2024-01-01 10:00:001e-07"),
    ("concat_ws('-', t, q)", "2024-01-01 10:00:00-nan"),
    ("CAST(f AS VARCHAR)", "1e-07"), ("CAST(q AS VARCHAR)", "nan"), ("div(7, n)", 3),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), PARTS)
def test_parts_of_texts_and_lists(text: str, expected: Any) -> None:
    types: dict[str, Any] = {"z": pl.Int64, "o": pl.String}
    row: dict[str, Any] = {
        "s": "abc", "n": 2, "z": None, "o": None, "p": "b", "w": " \tb ", "f": 1e-7,
        "q": float("nan"), "t": datetime(2024, 1, 1, 10),
    }  # fmt: skip
    assert value(text, types, **row) == expected


def test_a_constant_text_is_replaced_in_every_row() -> None:
    parts = pl.concat([pl.DataFrame({"p": ["a", None]}), pl.DataFrame({"p": ["b", "c"]})])
    assert parts["p"].n_chunks() == 2
    for text, expected in (
        ("replace('abc', 'b', p)", ["aac", None, "abc", "acc"]),
        ("split_part('abc', p, 1)", ["", None, "a", "ab"]),
    ):
        made = parse(text, dict(parts.schema))
        assert parts.with_columns(v=made)["v"].to_list() == expected


@pytest.mark.parametrize("number", [1e300, -1e300, float("nan"), float("inf")])
def test_floats_that_a_decimal_cannot_hold(number: float) -> None:
    assert value("TRY_CAST(v AS DECIMAL(18, 4))", v=number) is None
    with pytest.raises(pl.exceptions.PolarsError, match="the value does not fit"):
        value("CAST(v AS DECIMAL(18, 4))", v=number)


def test_floats_of_32_bits() -> None:
    types: dict[str, Any] = {"r": pl.Float32}
    assert value("TRY_CAST(v AS REAL)", v=1e300) is None
    assert value("CAST(v AS REAL)", v=float("inf")) == float("inf")
    with pytest.raises(pl.exceptions.PolarsError, match="the value does not fit"):
        value("CAST(v AS REAL)", v=1e300)
    assert value("1e300 >= r", types, r=float("inf")) is False
    assert value("ln(r)", types, r=3.0) == pytest.approx(1.0986122886681098, rel=1e-15)
    assert value("r + 1e0", types, r=1e10) == 10000000001.0


def test_unsigned_and_signed_integers_meet() -> None:
    types: dict[str, Any] = {"u": pl.UInt64, "i": pl.Int32, "b": pl.Boolean}
    row: dict[str, Any] = {"u": 2**64 - 1, "i": -1, "b": True}
    for text in (
        "coalesce(u, i)",
        "CASE WHEN b THEN u ELSE i END",
        "if(b, u, i)",
        "greatest(u, i)",
    ):
        assert value(text, types, **row) == 2**64 - 1


def test_a_constant_that_is_cast_has_a_type() -> None:
    assert value("CAST(-1 AS INT) + i", {"i": pl.Int16}, i=-(2**15)) == -(2**15) - 1
    assert value("round(u, -1)", {"u": pl.UInt64}, u=2**64 - 1) == 2**64 + 4
    assert value("round(u, -1)", {"u": pl.UInt8}, u=255) == 260


def test_a_list_has_the_type_of_its_widest_element() -> None:
    assert value("array_upper(ARRAY[0, 1000, i])", {"i": pl.Int8}, i=7) == 1000
    schema: dict[str, pl.DataType] = {"i": pl.Int8()}
    made = parse("array_upper(ARRAY[0, i])", schema)
    frame = pl.DataFrame({"i": [1, 2]}, schema=schema)
    assert frame.select(v=made)["v"].dtype == infer_row_wise(made, schema)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hi THERE", "Hi There"),
        ("7bb o'NEIL", "7bb O'Neil"),
        ("", ""),
        ("ünï-É", "Ünï-É"),
        (None, None),
    ],
)
def test_initcap(text: str | None, expected: str | None) -> None:
    assert value("initcap(s)", {"s": pl.String}, s=text) == expected


def test_a_cast_literal_means_the_same_inside_other_expressions() -> None:
    assert (
        value("TRY_CAST(0.5 AS SMALLINT) % i", i=7) == value("TRY_CAST(0.5 AS SMALLINT)", i=7) == 1
    )


def test_null_has_no_remainder() -> None:
    types: dict[str, Any] = {"a": pl.Int64, "b": pl.Int64}
    assert value("a % b", types, a=None, b=0) is None
    with pytest.raises(pl.exceptions.PolarsError, match="division by zero"):
        value("div(a, b)", types, a=1, b=0)


def test_intervals_add_up() -> None:
    types: dict[str, Any] = {"d": pl.Duration}
    assert value("d + INTERVAL '1 hour'", types, d=timedelta(hours=1)) == timedelta(hours=2)
    assert value("INTERVAL '1 hour' - d", types, d=timedelta(minutes=1)) == timedelta(minutes=59)
    assert value("INTERVAL '1 hour' + INTERVAL '1 day'", x=1) == timedelta(days=1, hours=1)


def test_constants_in_a_choice_are_row_wise() -> None:
    assert value("1 > if(s = s, 2, 3)", s="a") is False
    assert (
        value("INTERVAL '1 second' > if(s = s, INTERVAL '1 hour', INTERVAL '2 hours')", s="a")
        is False
    )


def test_quotients_of_large_unsigned_numbers() -> None:
    types: dict[str, Any] = {"u": pl.UInt64, "w": pl.UInt32, "i": pl.Int64}
    most = 2**64 - 1
    assert value("u // w", types, u=most, w=1) == most
    assert value("div(u, 1)", types, u=most) == most
    assert value("u // i", types, u=most, i=-2) == -(2**63) + 1
    assert value("u // i", types, u=None, i=0) is None
    with pytest.raises(pl.exceptions.PolarsError, match="division by zero"):
        value("u // w", types, u=1, w=0)


def test_a_product_with_null_is_null_however_large_the_other_factor_is() -> None:
    types: dict[str, Any] = {"d": pl.Decimal(38, 4), "e": pl.Decimal(10, 2)}
    assert value("d * e", types, d=Decimal("9" * 34), e=None) is None
    assert value("e * d", types, d=Decimal("9" * 34), e=None) is None
    with pytest.raises(pl.exceptions.PolarsError):
        value("CAST(s AS DECIMAL(38, 4)) * e", types, s="f", e=None)


def test_rounding_to_tens_keeps_the_type() -> None:
    assert parsed_type("round(x, -1)", x=pl.Float32()) == pl.Float32()
    assert parsed_type("round(x, 1)", x=pl.Float32()) == pl.Float32()


def test_functions_of_constants_are_of_64_bits() -> None:
    assert parsed_type("least(x, ln(2.5e0))", x=pl.Float32()) == pl.Float64()
    assert parsed_type("x + sqrt(2)", x=pl.Float32()) == pl.Float64()
    with pytest.raises(pl.exceptions.PolarsError):
        value("CAST(log(-15e2, n) AS SMALLINT)", n=2)  # it is NaN, which became 0


def parsed_type(text: str, **schema: pl.DataType) -> pl.DataType:
    return infer_row_wise(parse(text, schema), schema)


def test_a_list_that_fails_fails_where_nothing_is_sought_too() -> None:
    with pytest.raises(pl.exceptions.PolarsError):
        value("array_contains(ARRAY[n, CAST(s AS INT)], n)", {"n": pl.Int32}, n=None, s="x")
