"""Functions of times."""

from __future__ import annotations

from penstock.query.functions.entry import STRICT, row

_T = "TIMESTAMP '2024-02-29 13:45:06'"
_PARTS = "the seconds have no fraction; epoch, milliseconds and microseconds are floats"
_FORMAT = "formats are those of strftime: `%Y-%m-%d`"

TIMES = (
    row(
        "year(t)",
        "Int64",
        STRICT,
        f"year({_T})",
        "2024",
        "PostgreSQL has only extract and date_part",
    ),
    row("quarter(t)", "Int64", STRICT, f"quarter({_T})", "1"),
    row("month(t)", "Int64", STRICT, f"month({_T})", "2"),
    row("week(t)", "Int64", STRICT, f"week({_T})", "9"),
    row("day(t)", "Int64", STRICT, f"day({_T})", "29", also=["dayofmonth"]),
    row("dayofweek(t)", "Int64", STRICT, f"dayofweek({_T})", "4"),
    row("dayofyear(t)", "Int64", STRICT, f"dayofyear({_T})", "60"),
    row("hour(t)", "Int64", STRICT, f"hour({_T})", "13"),
    row("minute(t)", "Int64", STRICT, f"minute({_T})", "45"),
    row("second(t)", "Int64", STRICT, f"second({_T})", "6"),
    row(
        "date_part(part, t)",
        "a number",
        STRICT,
        f"date_part('isodow', {_T})",
        "4",
        _PARTS,
    ),
    row(
        "date_trunc(unit, t)",
        "as t; Datetime for a date",
        "NULL if t is",
        f"date_trunc('hour', {_T})",
        "2024-02-29 13:00:00",
        "microseconds to years; with a zone, by its clocks",
    ),
    row("epoch(t)", "Float64", STRICT, f"epoch({_T})", "1709214306.0", "EXTRACT(EPOCH FROM t)"),
    row("epoch_ms(t)", "Int64", STRICT, f"epoch_ms({_T})", "1709214306000", "PostgreSQL has none"),
    row(
        "epoch_ms(milliseconds)",
        "Datetime",
        STRICT,
        "epoch_ms(1709214306000)",
        "2024-02-29 13:45:06",
        "PostgreSQL has none; a time in UTC without a zone",
    ),
    row(
        "epoch_us(t)", "Int64", STRICT, f"epoch_us({_T})", "1709214306000000", "PostgreSQL has none"
    ),
    row(
        "epoch_us(microseconds)",
        "Datetime",
        STRICT,
        "epoch_us(1709214306000000)",
        "2024-02-29 13:45:06",
        "PostgreSQL has none; a time in UTC without a zone",
    ),
    row(
        "to_timestamp(seconds)",
        "Datetime",
        STRICT,
        "to_timestamp(1709214306.5)",
        "2024-02-29 13:45:06.500000+00:00",
        "in the zone UTC",
    ),
    row(
        "to_timestamp(s[, format])",
        "Datetime",
        STRICT,
        "to_timestamp('29.02.2024 13:45', '%d.%m.%Y %H:%M')",
        "2024-02-29 13:45:00+00:00",
        f"in the zone UTC; {_FORMAT}",
    ),
    row("make_date(year, month, day)", "Date", STRICT, "make_date(2024, 2, 29)", "2024-02-29"),
    row(
        "make_timestamp(year, month, day, hour, minute, second)",
        "Datetime",
        STRICT,
        "make_timestamp(2024, 2, 29, 13, 45, 6.5)",
        "2024-02-29 13:45:06.500000",
    ),
    row(
        "strftime(t, format)",
        "String",
        STRICT,
        f"strftime({_T}, '%Y-%m')",
        "'2024-02'",
        "to_char, with other formats",
    ),
    row(
        "strptime(s, format)",
        "Datetime",
        STRICT,
        "strptime('29.02.2024', '%d.%m.%Y')",
        "2024-02-29 00:00:00",
        "to_timestamp, with other formats",
    ),
    row(
        "date(s[, format])", "Date", STRICT, "date('29.02.2024', '%d.%m.%Y')", "2024-02-29", _FORMAT
    ),
    row("time(s[, format])", "Time", STRICT, "time('13:45:06')", "13:45:06", _FORMAT),
    row(
        "timestamp(s[, format])",
        "Datetime",
        STRICT,
        "timestamp('2024-02-29 13:45:06')",
        "2024-02-29 13:45:06",
        _FORMAT,
        also=["datetime"],
    ),
)
