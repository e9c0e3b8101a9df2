"""The functions that expressions may call: what they take, give and make of NULL.

Law: SQL accepts the functions of this table and no others; docs/sql.md shows it, and a test runs
every example of it. To add a function, add its entry to the module of its kind.
"""

from __future__ import annotations

import difflib

import polars as pl

from penstock.query.functions.aggregates import AGGREGATES
from penstock.query.functions.entry import Function
from penstock.query.functions.forms import FORMS
from penstock.query.functions.numbers import NUMBERS
from penstock.query.functions.texts import TEXTS
from penstock.query.functions.times import TIMES
from penstock.query.functions.values import VALUES

KINDS: dict[str, tuple[Function, ...]] = {
    "Operators and forms": FORMS,
    "Aggregates": AGGREGATES,
    "Values and lists": VALUES,
    "Numbers": NUMBERS,
    "Texts": TEXTS,
    "Times": TIMES,
}
ROWS = pl.DataFrame(
    {
        "x": [2, 1, None, 5],
        "y": [1.5, None, 2.0, 4.0],
        "s": ["b", "a", None, "b"],
        "ok": [True, False, None, True],
    }
)
"""The rows of the examples of aggregates, one second apart."""
FUNCTIONS: dict[str, tuple[Function, ...]] = {}
"""The entries of each name."""
for _entry in (entry for kind in KINDS.values() for entry in kind):
    for _name in _entry.names:
        FUNCTIONS[_name] = (*FUNCTIONS.get(_name, ()), _entry)
AGGREGATE_NAMES = frozenset(name for entry in AGGREGATES for name in entry.names)

_INSTEAD = {
    "any_value": "first(x)",
    "array_max": "array_upper(l)",
    "array_min": "array_lower(l)",
    "btrim": "trim(s)",
    "cardinality": "array_length(l)",
    "date_add": "t + INTERVAL '1 day'",
    "date_bin": "TUMBLE in GROUP BY, or date_trunc",
    "date_diff": "t - u",
    "date_format": "strftime(t, '%Y-%m-%d')",
    "dateadd": "t + INTERVAL '1 day'",
    "datediff": "t - u",
    "collect_list": "array_agg(x)",
    "collect_set": "array_agg(DISTINCT x)",
    "convert_timezone": "t AT TIME ZONE 'Europe/Berlin'",
    "explode": "Stream.explode",
    "from_unixtime": "to_timestamp(seconds)",
    "from_utc_timestamp": "t AT TIME ZONE 'UTC' AT TIME ZONE 'Europe/Berlin'",
    "get_json_object": "a struct column and st.field",
    "group_concat": "string_agg(s, separator)",
    "hopping": "HOP(time, size, advance) in GROUP BY",
    "iif": "if(b, x, y)",
    "isnull": "x IS NULL",
    "lcase": "lower(s)",
    "len": "length(s)",
    "listagg": "string_agg(s, separator)",
    "mean": "avg(x)",
    "nvl": "coalesce(x, y)",
    "percentile": "quantile_cont(x, q)",
    "percentile_approx": "approx_quantile(x, q)",
    "percentile_cont": "quantile_cont(x, q)",
    "percentile_disc": "quantile_disc(x, q)",
    "session_window": "SESSION(time, gap) in GROUP BY",
    "size": "array_length(l)",
    "sliding": "HOP(time, size, advance) in GROUP BY",
    "std": "stddev(x)",
    "time_bucket": "TUMBLE in GROUP BY, or date_trunc",
    "timestamp_micros": "to_timestamp(x / 1000000)",
    "timestamp_millis": "epoch_ms(x)",
    "timestamp_seconds": "to_timestamp(seconds)",
    "to_char": "strftime(t, '%Y-%m-%d')",
    "to_date": "date(s, '%Y-%m-%d')",
    "to_unix_timestamp": "epoch(t)",
    "to_utc_timestamp": "t AT TIME ZONE 'Europe/Berlin'",
    "tumbling": "TUMBLE(time, size) in GROUP BY",
    "ucase": "upper(s)",
    "unix_timestamp": "epoch(t)",
    "unnest": "Stream.explode",
    "window": "TUMBLE(time, size) or HOP(time, size, advance) in GROUP BY",
}
"""What to write for functions that other databases have."""
_CLOCKS = frozenset({"now", "random", "rand", "uuid", "gen_random_uuid"})
_OVER = frozenset({"cume_dist", "lag", "last_value", "lead", "nth_value", "ntile", "row_number"})
_OVER |= {"dense_rank", "percent_rank", "rank"}


def unknown_function(name: str) -> str:
    """Return the complaint about a function that does not exist.

    >>> unknown_function("lenght")
    "unknown function 'lenght'; did you mean 'length'?"
    >>> unknown_function("NVL")
    "unknown function 'nvl'; write coalesce(x, y)"
    """
    low = name.lower()
    if low in _CLOCKS:
        return f"{low}() is not supported: a replay of the query would give other rows"
    if low in _OVER:
        return f"{low} needs OVER, which is not supported; use GROUP BY with a window"
    near = difflib.get_close_matches(low, list(FUNCTIONS), n=1)
    if low in _INSTEAD:
        hint = f"write {_INSTEAD[low]}"
    elif near:
        hint = f"did you mean {near[0]!r}?"
    else:
        hint = "docs/sql.md lists the functions"
    return f"unknown function {low!r}; {hint}"


class WrongCall(ValueError):  # noqa: N818  # a finding that the front end collects
    """A call of a function that does not exist, or with arguments that it does not take."""


def check_call(name: str, arguments: int) -> None:
    """Raise `WrongCall` unless there is a function that takes so many arguments.

    >>> check_call("round", 3)
    Traceback (most recent call last):
    ...
    penstock.query.functions.WrongCall: round takes other arguments: round(x[, digits]); found 3
    """
    entries = FUNCTIONS.get(name.lower())
    if entries is None:
        raise WrongCall(unknown_function(name))
    found = [entry.misuse(arguments) for entry in entries]
    if None not in found:
        raise WrongCall(found[0])
