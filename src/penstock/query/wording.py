"""What Polars says about an expression, in the words of SQL.

Law: a complaint names types as `Stream.schema` shows them, and says what to do where that is known.
What is not known here is passed on as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_TYPES = {
    "str": "String",
    "bool": "Boolean",
    "binary": "Binary",
    "date": "Date",
    "time": "Time",
    "dyn int": "a number",
    "dyn float": "a number",
    "f32": "Float32",
    "f64": "Float64",
    "cat": "Categorical",
    "null": "Null",
}
_WORDS = {"neg": "-", "rounding": "round", "to_string": "strftime"}
_CAST = "write CAST(… AS …) to change one of them"


def _type(name: str) -> str:
    """Return a type of Polars' messages as a schema shows it."""
    name = name.strip(" `'")
    if found := re.fullmatch(r"([iu])(8|16|32|64|128)", name):
        return f"{'Int' if found[1] == 'i' else 'UInt'}{found[2]}"
    if found := re.fullmatch(r"(datetime|duration|list|struct|decimal|array)\[.*\]", name):
        return found[1].capitalize()
    return _TYPES.get(name, name)


_RULES: tuple[tuple[str, Callable[[re.Match[str]], str]], ...] = (
    (
        r"arithmetic on dtypes (.+?) and (.+?) is not allowed",
        lambda m: f"cannot compute with {_type(m[1])} and {_type(m[2])}; {_CAST}",
    ),
    (
        r"(\S+) not allowed on (.+?) and (.+)",
        lambda m: f"{m[1]} cannot be used with {_type(m[2])} and {_type(m[3])}; {_CAST}",
    ),
    (
        r"([&|]) on (.+?) and (.+?) is not supported",
        lambda m: (
            f"{'AND' if m[1] == '&' else 'OR'} takes conditions, not {_type(m[2])} and "
            f"{_type(m[3])}"
        ),
    ),
    (
        r"cannot compare string with numeric type \((.+?)\)",
        lambda m: "a String cannot be compared with a number; put quotes around it, or CAST one",
    ),
    (
        r"could not evaluate .*comparison between series '(.+?)' of dtype: (.+?) and series "
        r"'(.+?)' of dtype: (.+)",
        lambda m: f"{_shorten(m[2])} cannot be compared with {_shorten(m[4])}; {_CAST}",
    ),
    (
        r"invalid series dtype: expected `(.+?)`, got `(.+?)` for series with name `(.*)`",
        lambda m: f"{_type(m[1])} is needed, and {_name_column(m[3])} is {_type(m[2])}",
    ),
    (
        r"expected (String|List) (?:data )?type(?: for list operation)?, got: (.+)",
        lambda m: f"{m[1]} is needed, not {_shorten(m[2])}",
    ),
    (
        r"[`']?(\w+)[`']?(?: \(.+?\))? operation not supported for dtype `(.+?)`",
        lambda m: f"{_WORDS.get(m[1], m[1])} does not take {_type(m[2])}",
    ),
    (
        r"unit: '(\w+)' not supported",
        lambda m: (
            f"unknown unit {m[1]!r} of an interval; units: year, quarter, month, week, day, "
            "hour, minute, second, millisecond, microsecond"
        ),
    ),
    (
        r"expected a valid unit to follow integer in the interval string|minus signs are not yet",
        lambda m: "an interval is written in whole numbers and units: INTERVAL '1 day 2 hours'",
    ),
    (
        r"expected leading integer in the interval string",
        lambda m: "an interval is written in whole numbers and units: INTERVAL '1 day 2 hours'",
    ),
    (
        r"failed to determine supertype of (.+) and (.+)",
        lambda m: f"{_type(m[1])} and {_type(m[2])} do not go together; {_CAST}",
    ),
    (
        r"division with '(.+?)' datatypes is not allowed",
        lambda m: f"cannot divide {m[1]}; {_CAST}",
    ),
    (
        r"conversion from `(.+?)` to `(.+?)` failed .*?: \[(.*?)\]",
        lambda m: f"{m[3]} cannot be read as {_type(m[2])}",
    ),
)


def _shorten(dtype: str) -> str:
    return _type(re.sub(r"\(.*\)", "", dtype))


def _name_column(name: str) -> str:
    return f"column {name!r}" if name and name != "literal" else "the value"


def in_plain_words(complaint: str) -> str:
    """Return a complaint of Polars in the words of SQL.

    >>> in_plain_words("`abs` operation not supported for dtype `str`")
    'abs does not take String'
    >>> in_plain_words("something else")
    'something else'
    """
    for pattern, say in _RULES:
        if found := re.search(pattern, complaint):
            return say(found)
    return complaint
