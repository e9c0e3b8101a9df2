"""Functions of texts."""

from __future__ import annotations

from penstock.query.functions.entry import STRICT, row

_REGEX = "the syntax of patterns is that of Rust: no look-around, no back references"

TEXTS = (
    row(
        "length(s)", "Int64", STRICT, "length('né')", "2", also=["char_length", "character_length"]
    ),
    row("octet_length(s)", "Int64", STRICT, "octet_length('né')", "3"),
    row("bit_length(s)", "Int64", STRICT, "bit_length('né')", "24"),
    row("lower(s)", "String", STRICT, "lower('ABC')", "'abc'"),
    row("upper(s)", "String", STRICT, "upper('abc')", "'ABC'"),
    row("initcap(s)", "String", STRICT, "initcap('hi THERE')", "'Hi There'"),
    row("concat(x, ...)", "String", "skips NULL", "concat('a', NULL, 1)", "'a1'"),
    row(
        "concat_ws(separator, x, ...)",
        "String",
        "skips NULL",
        "concat_ws('-', 'a', NULL, 1)",
        "'a-1'",
    ),
    row("left(s, n)", "String", STRICT, "left('abcd', -1)", "'abc'"),
    row("right(s, n)", "String", STRICT, "right('abcd', 2)", "'cd'"),
    row(
        "substr(s, start[, count])",
        "String",
        STRICT,
        "substr('abcd', 2, 2)",
        "'bc'",
        also=["substring"],
    ),
    row(
        "lpad(s, n[, fill])",
        "String",
        STRICT,
        "lpad('7', 3, '0')",
        "'007'",
        "fill is one character",
    ),
    row(
        "rpad(s, n[, fill])",
        "String",
        STRICT,
        "rpad('7', 3, '0')",
        "'700'",
        "fill is one character",
    ),
    row("trim(s)", "String", STRICT, "trim('  a ')", "'a'"),
    row("ltrim(s[, characters])", "String", STRICT, "ltrim('xxa', 'x')", "'a'"),
    row("rtrim(s[, characters])", "String", STRICT, "rtrim('axx', 'x')", "'a'"),
    row("replace(s, old, new)", "String", STRICT, "replace('abab', 'b', 'x')", "'axax'"),
    row("reverse(s)", "String", STRICT, "reverse('abc')", "'cba'"),
    row("normalize(s)", "String", STRICT, "normalize('é')", "'é'"),
    row("starts_with(s, start)", "Boolean", STRICT, "starts_with('abc', 'a')", "true"),
    row("ends_with(s, end)", "Boolean", STRICT, "ends_with('abc', 'c')", "true"),
    row("strpos(s, part)", "Int64", STRICT, "strpos('abc', 'c')", "3", also=["instr"]),
    row("split_part(s, separator, n)", "String", STRICT, "split_part('a-b-c', '-', 2)", "'b'"),
    row(
        "string_to_array(s, separator)", "List", STRICT, "string_to_array('a-b', '-')", "['a', 'b']"
    ),
    row(
        "regexp_like(s, pattern[, flags])",
        "Boolean",
        STRICT,
        "regexp_like('ABC', 'b', 'i')",
        "true",
        _REGEX,
    ),
    row(
        "regexp_replace(s, pattern, new[, flags])",
        "String",
        STRICT,
        "regexp_replace('abcb', 'b', 'x', 'g')",
        "'axcx'",
        _REGEX,
    ),
)
