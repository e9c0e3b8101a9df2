"""The grammar of scalars."""

from __future__ import annotations

from collections.abc import Iterable

from bench.differ.form import COMPARED, Form, form
from bench.differ.table import ZONE


def _numbers() -> Iterable[Form]:
    for kind, pairs in _MIXED.items():
        for left, right in pairs:
            for sign in "+-*":
                meant, alike = _wider(left, right, sign)
                yield form(kind, f"({{}} {sign} {{}})", left, right, meant=meant, alike=alike)
    yield form("int", "({} % {})", "int", "int", meant="least", alike=_REMAINDER)
    for left, right in _MIXED["decimal"]:
        yield form("decimal", "({} % {})", left, right)
    yield form("float", "({} % {})", "bare", "bare")  # no last digits, which it shows
    meant, alike = _wider("float", "int", "%")
    yield form("float", "mod({}, {})", "bare", "int", meant=meant, alike=alike)
    yield form("int", "({} // {})", "int", "int", meant="least", alike=_QUOTIENT)
    yield form("int", "mod({}, {})", "int", "int", meant="least", alike=_REMAINDER)
    for left in ("int", "float", "decimal"):
        for right in ("int", "float", "decimal"):
            meant, alike = _wider(left, right, "/")
            yield form("float", "({} / {})", left, right, meant=meant, alike=alike)
    for kind in ("int", "float", "decimal"):
        yield form(kind, "(- {})", kind, meant="unsigned", alike=_NEGATIVE if kind == "int" else "")
        yield form(kind, "abs({})", kind)
        yield form(kind, "round({}, {})", kind, "#digits")
        whole = "({0})" if kind == "int" else ""
        yield form(kind, "round({})", kind, meant="unsigned" if whole else "", alike=whole)
        yield form("float", "sqrt({})", kind)
        yield form("float", "power({}, {})", kind, "#exponent")
    yield form("int", "sign({})", "int")
    yield form(
        "float", "sign({})", "float", judge="CAST(sign({0}) AS DOUBLE)", meant="sign", alike=_SIGN
    )
    for kind in ("float", "decimal"):
        for name in ("ceil", "floor", "trunc"):
            yield form(kind, f"{name}({{}})", kind)
    for name in _OF_FLOATS:
        yield form("float", f"{name}({{}})", "bare" if name in _STEEP else "float")
        yield form("float", f"{name}({{}})", "count")
    yield form("float", "log({}, {})", "float", "count", judge="log({1}, {0})")
    yield form("float", "({} ^ {})", "float", "#exponent")  # columns: see the design note
    yield form("float", "atan2({}, {})", "bare", "bare")
    yield form("float", "pi()")
    yield form("float", "sind({})", "count", judge="sin(radians({0}))")
    yield form("float", "cosd({})", "count", judge="cos(radians({0}))")
    for name, sign in (("bit_and", "&"), ("bit_or", "|"), ("bit_xor", "xor")):
        judge = "xor({0}, {1})" if sign == "xor" else f"({{0}} {sign} {{1}})"
        yield form("int", f"{name}({{}}, {{}})", "int", "int", judge=judge)
    yield form("int", "bit_not({})", "bits", judge="(~ {0})")
    yield form("int", "bit_count({})", "count", judge="CAST(bit_count({0}) AS BIGINT)")
    told = {"judge": "({0} // {1})", "meant": "least", "alike": _QUOTIENT}
    yield form("int", "div({}, {})", "int", "int", **told)
    for name in ("asin", "acos", "atan"):
        yield form("float", f"{name}d({{}})", "float", judge=f"degrees({name}({{0}}))")
    yield form("float", "atan2d({}, {})", "bare", "bare", judge="degrees(atan2({0}, {1}))")
    yield form("float", "tand({})", "count", judge="tan(radians({0}))")
    yield form("float", "cotd({})", "count", judge="cot(radians({0}))")


def _wider(left: str, right: str, sign: str) -> tuple[str, str]:
    """Return the name and the making up where a result of DuckDB has fewer bits or digits."""
    if "float" in (left, right) and (sign == "/" or left != right):
        wide = f"(CAST({{0}} AS DOUBLE) {sign} CAST({{1}} AS DOUBLE))"
        if "int" in (left, right) and sign != "/":
            small = f"typeof({{{int(right == 'int')}}}) IN ({_SMALL})"
            return "real", f"(CASE WHEN {small} THEN {{0}} {sign} {{1}} ELSE {wide} END)"
        return "real", wide
    if sign == "*" and "decimal" in (left, right):
        return "digits", "(({0} + CAST(0 AS DECIMAL(38, 0))) * {1})"
    return "", ""


_SMALL = "'TINYINT', 'UTINYINT', 'SMALLINT', 'USMALLINT'"
_MIXED = {
    "int": (("int", "int"),),
    "float": (("float", "float"), ("float", "int"), ("decimal", "float"), ("int", "float")),
    "decimal": (("decimal", "decimal"), ("decimal", "int"), ("int", "decimal")),
}
_QUOTIENT = (
    "(CASE WHEN {1} = -1 AND typeof({0}) <> 'BIGINT' THEN - CAST({0} AS HUGEINT) "
    "ELSE {0} // {1} END)"
)
_REMAINDER = "(CASE WHEN {1} = -1 THEN {0} - {0} ELSE {0} % {1} END)"
_NEGATIVE = "(CASE WHEN typeof({0}) LIKE 'U%' THEN - CAST({0} AS HUGEINT) ELSE - {0} END)"
_SIGN = "(CASE WHEN isnan({0}) OR {0} = 0 THEN {0} ELSE CAST(sign({0}) AS DOUBLE) END)"
_STEEP = ("sin", "cos", "tan", "cot")  # they show the last digits of what they are given
_OF_FLOATS = (
    "cbrt", "exp", "ln", "log10", "log2", "degrees", "radians", "sin", "cos", "tan", "cot", "asin",
    "acos", "atan",
)  # fmt: skip


def _texts() -> Iterable[Form]:
    for name in ("trim", "ltrim", "rtrim", "reverse"):
        yield form("text", f"{name}({{}})", "text")
    yield form("text", "upper({})", "text", meant="case", alike="upper(replace({0}, 'ß', 'SS'))")
    yield form("text", "lower({})", "text", meant="case", alike=_LOWER)
    capital, rest = "upper(replace(x[1], 'ß', 'SS'))", _LOWER.format("x[2:]")
    alike = _INITCAP.replace("upper(x[1])", capital).replace("lower(x[2:])", rest)
    yield form("text", "initcap({})", "text", judge=_INITCAP, meant="case", alike=alike)
    for name in ("left", "right"):
        yield form("text", f"{name}({{}}, {{}})", "text", "count")
    for name in ("substr", "substring"):
        meant = {"meant": "substr", "alike": _SUBSTR}
        yield form("text", f"{name}({{}}, {{}})", "text", "count", **meant)
        meant = {"meant": "substr", "alike": _SUBSTR_LENGTH}
        yield form("text", f"{name}({{}}, {{}}, {{}})", "text", "count", "#length", **meant)
    yield form("text", "substring({} FROM {} FOR {})", "text", "#start", "#length")
    for name in ("lpad", "rpad"):
        yield form("text", f"{name}({{}}, {{}}, {{}})", "text", "#width", "#fill")
    yield form("text", "ltrim({}, {})", "text", "#characters")
    yield form("text", "rtrim({}, {})", "text", "#characters")
    yield form("text", "trim(BOTH {1} FROM {0})", "text", "#characters", judge="trim({0}, {1})")
    yield form("text", "replace({}, {}, {})", "text", "text", "text")
    yield form("text", "split_part({}, {}, {})", "text", "#separator", "#place")
    for kind in ("text", "int", "bool", "date", "time", "decimal"):
        yield form("text", "({} || {})", "text", kind)
        yield form("text", "concat({}, {}, {})", "text", kind, "text")
        yield form("text", "concat_ws({}, {}, {})", "#separator", kind, "text")
    yield form(
        "text", "array_to_string(string_to_array({}, {}), {})", "text", "#separator", "#fill"
    )
    yield form("text", "regexp_replace({}, {}, {}, 'g')", "text", "#regex", "#fill")
    yield form("bool", "regexp_like({}, {})", "text", "#regex", judge="regexp_matches({0}, {1})")
    for name in ("length", "char_length", "bit_length"):
        yield form("int", f"{name}({{}})", "text")
    yield form("int", "octet_length({})", "text", judge="octet_length(encode({0}))")
    yield form("int", "strpos({}, {})", "text", "text")
    yield form("int", "position({} IN {})", "text", "text")
    yield form("bool", "starts_with({}, {})", "text", "text")
    yield form("bool", "ends_with({}, {})", "text", "text")
    for word in ("LIKE", "NOT LIKE", "ILIKE", "NOT ILIKE"):
        yield form("bool", f"({{}} {word} {{}} ESCAPE '\\')", "text", "pattern")
        yield form("bool", f"({{}} {word} {{}})", "text", "#like", judge=_ESCAPED.format(word))
    yield form("bool", "({} LIKE {} ESCAPE '!')", "text", "#marked")


_LOWER = "lower(replace({0}, 'İ', 'i\u0307'))"
_SUBSTR = "substr({0}, greatest({1}, 1 + 0 * {1}))"
_SUBSTR_LENGTH = (
    "substr({0}, greatest({1}, 1 + 0 * {1}), greatest({2} + least({1} - 1, 0 * {1}), 0))"
)
_ESCAPED = "({{0}} {} {{1}} ESCAPE '\\')"
_INITCAP = (
    "(CASE WHEN {0} IS NOT NULL THEN coalesce(list_reduce(list_prepend('', list_transform("
    "regexp_extract_all({0}, '[\\p{{L}}\\p{{N}}]+|[^\\p{{L}}\\p{{N}}]+'), lambda x: "
    "upper(x[1]) || lower(x[2:])))"
    ", lambda a, c: a || c), '') END)"
)


def _truths() -> Iterable[Form]:
    pairs = [(kind, kind) for kind in COMPARED]
    pairs += [("int", "float"), ("int", "decimal"), ("decimal", "float"), ("date", "time")]
    for left, right in pairs:
        for sign in ("=", "<>", "<", "<=", ">", ">="):
            meant, alike = _wider(left, right, sign)
            yield form("bool", f"({{}} {sign} {{}})", left, right, meant=meant, alike=alike)
        yield form("bool", "({} IS DISTINCT FROM {})", left, right)
        yield form("bool", "({} IS NOT DISTINCT FROM {})", left, right)
    for kind in COMPARED:
        yield form("bool", "({} BETWEEN {} AND {})", kind, kind, kind)
        yield form("bool", "({} NOT BETWEEN {} AND {})", kind, kind, kind)
        yield form("bool", "({} IN ({}, {}))", kind, kind, kind)
        yield form("bool", "({} NOT IN ({}, {}, NULL))", kind, kind, kind)
        yield form("bool", "({} IS NULL)", kind)
        yield form("bool", "({} IS NOT NULL)", kind)
    yield form("bool", "({} IN (0, 1, 2, 3, 7, 10))", "int")
    yield form("bool", "({} NOT IN ('a', 'b', 'abc', 'x', '', 'B'))", "text")
    yield form("bool", "(NOT {})", "bool")
    yield form("bool", "({} AND {})", "bool", "bool", meant="lazy", alike=_AND)
    yield form("bool", "({} OR {})", "bool", "bool", meant="lazy", alike=_OR)
    for word in ("TRUE", "NOT TRUE", "FALSE", "NOT FALSE"):
        yield form("bool", f"({{}} IS {word})", "bool")


_AND = "(CASE WHEN NOT {0} THEN FALSE ELSE {0} AND {1} END)"
_OR = "(CASE WHEN {0} THEN TRUE ELSE {0} OR {1} END)"


def _choices() -> Iterable[Form]:
    for kind in COMPARED:
        for text, parts in _CHOICES:
            kinds = tuple(part or kind for part in parts)
            meant, alike = _same_places(text, kinds) if kind == "decimal" else ("", "")
            yield form(kind, text, *kinds, meant=meant, alike=alike)
        exact = kind == "span"
        meant, alike = ("durations", _better("{0}", "{1}", ">")) if exact else ("", "")
        yield form(kind, "greatest({}, {})", kind, kind, meant=meant, alike=alike)
        alike = _better(_better("{0}", "{1}", "<"), "{2}", "<") if exact else ""
        yield form(kind, "least({}, {}, {})", kind, kind, kind, meant=meant, alike=alike)


def _same_places(text: str, kinds: tuple[str, ...]) -> tuple[str, str]:
    """Return a choice of decimals that all have room; DuckDB's common type may have too little."""
    holes = (f"CAST({{{i}}} AS DECIMAL(38, 10))" for i in range(len(kinds)))
    parts = [
        hole if k == "decimal" else f"{{{i}}}"
        for i, (hole, k) in enumerate(zip(holes, kinds, strict=True))
    ]
    return "places", text.format(*parts)


def _better(a: str, b: str, sign: str) -> str:
    return f"(CASE WHEN {a} {sign} {b} OR {b} IS NULL THEN {a} ELSE {b} END)"


_CHOICES = (
    ("CASE WHEN {} THEN {} ELSE {} END", ("bool", "", "")),
    ("CASE WHEN {} THEN {} WHEN {} THEN {} END", ("bool", "", "bool", "")),
    ("CASE {} WHEN {} THEN {} ELSE {} END", ("int", "int", "", "")),
    ("coalesce({}, {})", ("", "")),
    ("ifnull({}, {})", ("", "")),
    ("nullif({}, {})", ("", "")),
    ("if({}, {}, {})", ("bool", "", "")),
)


def _lists() -> Iterable[Form]:
    pair = "ARRAY[{0}, {1}]"
    for kind, least, most in (("int", "array_lower", "array_upper"), ("text", "", "")):
        if least:
            yield form(kind, f"{least}({pair})", kind, kind, judge="list_min([{0}, {1}])")
            yield form(kind, f"{most}({pair})", kind, kind, judge="list_max([{0}, {1}])")
        yield form(kind, f"array_get({pair}, {{2}})", kind, kind, "#start", judge=_ELEMENT)
        contains = "list_contains([{0}, {1}], {2})"
        yield form("bool", f"array_contains({pair}, {{2}})", kind, kind, kind, judge=contains)
        for name in ("array_reverse", "array_unique"):
            judge = f"array_to_string({_JUDGED[name]}, '-')"
            alike = f"coalesce({judge}, '')"
            text = f"array_to_string({name}({pair}), '-')"
            yield form("text", text, kind, kind, judge=judge, meant="lists", alike=alike)
    yield form("int", f"array_length({pair})", "text", "text", judge="len([{0}, {1}])")
    yield form("int", f"array_sum({pair})", "count", "count", judge="list_sum([{0}, {1}])")
    yield form("float", f"array_mean({pair})", "int", "int", judge="list_avg([{0}, {1}])")


_ELEMENT = "[{0}, {1}][{2}]"
_JUDGED = {
    "array_reverse": "list_reverse([{0}, {1}])",
    "array_unique": "CASE WHEN {0} IS NOT DISTINCT FROM {1} THEN [{0}] ELSE [{0}, {1}] END",
}


def _casts() -> Iterable[Form]:
    for cast in ("CAST", "TRY_CAST"):
        for kind, names in _TYPES.items():
            for name in names:
                for source in _CAST_FROM[kind]:
                    meant, alike = _read(cast, kind, name) if source == "numeral" else ("", "")
                    text = f"{cast}({{}} AS {name})"
                    judge = _UNSIGNED_NAN if (source, kind) == ("float", "text") else ""
                    yield form(kind, text, source, judge=judge, meant=meant, alike=alike)
    yield form("int", "({})::BIGINT", "float")
    yield form("text", "({})::VARCHAR", "float", judge=_UNSIGNED_NAN)


def _read(cast: str, kind: str, name: str) -> tuple[str, str]:
    """Return the name and the making up where DuckDB reads texts that are not read here."""
    plain = {"int": r"^\s*[+-]?[0-9]+\s*$", "date": "^[^a-zA-Z]*$", "time": "^[^a-zA-Z]*$"}
    pattern = plain.get(kind, "^[^_]*$")
    odd = "error('odd')" if cast == "CAST" else "NULL"
    known = f"{{0}} IS NULL OR regexp_matches({{0}}, '{pattern}')"
    return "numerals", f"(CASE WHEN {known} THEN {cast}({{0}} AS {name}) ELSE {odd} END)"


_UNSIGNED_NAN = "replace(CAST({0} AS VARCHAR), '-nan', 'nan')"
_TYPES = {
    "int": ("SMALLINT", "INT", "BIGINT"),
    "float": ("DOUBLE PRECISION", "REAL"),
    "decimal": ("DECIMAL(10, 2)", "DECIMAL(18, 4)", "DECIMAL(5, 1)"),
    "text": ("VARCHAR",),
    "bool": ("BOOLEAN",),
    "date": ("DATE",),
    "time": ("TIMESTAMP",),
}
_CAST_FROM = {
    "int": ("int", "float", "decimal", "numeral", "bool"),
    "float": ("int", "decimal", "numeral", "float", "bool"),
    "decimal": ("int", "float", "decimal", "numeral"),
    "text": ("int", "float", "decimal", "bool", "date", "time", "zoned"),
    "bool": ("int", "numeral", "float"),
    "date": ("time", "numeral", "zoned"),
    "time": ("date", "numeral", "zoned"),
}


def _times() -> Iterable[Form]:
    yield form("date", "({} + {})", "date", "count")
    yield form("date", "({} - {})", "date", "count")
    yield form("int", "({} - {})", "date", "date")
    for kind in ("time", "zoned"):
        yield form(kind, "({} + {})", kind, "#interval")
        yield form(kind, "({} - {})", kind, "#interval")
        exact = "({0} + to_microseconds(CAST(epoch({1}) * 1000000 AS BIGINT)))"
        yield form(kind, "({} + {})", kind, "span", meant="durations", alike=exact)
        yield form("span", "({} - {})", kind, kind, **(_APART if kind == "zoned" else {}))
        alike = {"meant": "hours", "alike": _CUT} if kind == "zoned" else {}
        yield form(kind, "date_trunc({}, {})", "#unit", kind, **alike)
        yield form("text", "strftime({}, {})", kind, "#format")
    yield form("time", "({} + {})", "date", "#interval")
    yield form("time", "date_trunc({}, {})", "#unit", "date")
    yield form("text", "strftime({}, '%Y/%m/%d %j')", "date")
    yield form("span", "({} + {})", "span", "span")
    yield form("span", "({} - {})", "span", "span")
    yield form("span", "({} * {})", "span", "count")
    for kind in ("date", "time", "zoned"):
        for part in ("year", "quarter", "month", "week", "day", "dayofyear"):
            yield form("int", f"{part}({{}})", kind)
        yield form("int", "dayofweek({})", kind)
        for part in ("ISODOW", "DOY", "ISOYEAR", "CENTURY", "DECADE", "MILLENNIUM"):
            yield form("int", f"EXTRACT({part} FROM {{}})", kind)
    for kind in ("time", "zoned"):
        for part in ("hour", "minute", "second"):
            yield form("int", f"{part}({{}})", kind)
        yield form("float", "date_part('epoch', {})", kind)
    day = "strptime({0}, '%Y-%m-%d')"
    infinite = f"(CASE WHEN {{0}} ILIKE '%inf%' THEN error('infinite') ELSE {day} END)"
    yield form("time", "strptime({}, '%Y-%m-%d')", "numeral", meant="numerals", alike=infinite)
    yield form("bool", "({} >= '2024-02-29')", "date")
    yield form("bool", "({} < '2024-02-29 13:45:06')", "time")
    yield from _made_times()


_MICROS = "epoch_us(CAST({{{}}} AS TIMESTAMPTZ))".format
_APART = {"meant": "instants", "alike": f"to_microseconds({_MICROS(0)} - {_MICROS(1)})"}
_WALL = f"timezone('{ZONE}', {{1}})"
_CUT = (
    "(CASE WHEN {0} IN ('hour', 'minute', 'second') "
    f"THEN {{1}} - ({_WALL} - date_trunc({{0}}, {_WALL})) ELSE date_trunc({{0}}, {{1}}) END)"
)


def _made_times() -> Iterable[Form]:
    for kind in ("date", "time", "zoned", "span"):
        yield form("float", "epoch({})", kind)
    for kind in ("date", "time", "zoned"):
        yield form("int", "epoch_ms({})", kind, meant="epoch_ms", alike=_MILLIS)
        yield form("int", "epoch_us({})", kind)
    for name, called, unit in (("ms", "epoch_ms", 1_000), ("us", "make_timestamp", 1)):
        judge = f"{called}(CAST({{0}} AS BIGINT))"
        alike = _NEAR.format(judge, unit)
        yield form("time", f"epoch_{name}({{}})", "int", judge=judge, meant="far", alike=alike)
    for kind in ("int", "float", "decimal"):
        alike = _NEAR.format(_SECONDS if kind == "int" else "to_timestamp({0})", 1_000_000)
        yield form("instant", "to_timestamp({})", kind, meant="far", alike=alike)
    day = "'%Y-%m-%d'"
    read = f"timezone('UTC', strptime({{0}}, {day}))"
    infinite = f"(CASE WHEN {{0}} ILIKE '%inf%' THEN error('infinite') ELSE {read} END)"
    told = {"judge": read, "meant": "numerals", "alike": infinite}
    yield form("instant", f"to_timestamp({{}}, {day})", "numeral", **told)
    yield form("date", "make_date({}, {}, {})", "#year", "count", "count")
    clock = ("#year", "#month", "#day", "count", "count", "float")
    yield form("time", "make_timestamp({}, {}, {}, {}, {}, {})", *clock)
    yield form("int", "EXTRACT(DAY FROM {})", "span", meant="durations", alike=_DAYS)
    yield form("int", "EXTRACT(HOUR FROM {})", "span", meant="durations", alike=_HOURS)
    for part in ("MINUTE", "SECOND"):
        yield form("int", f"EXTRACT({part} FROM {{}})", "span")


_MILLIS = "((epoch_us({0}) - (epoch_us({0}) % 1000 + 1000) % 1000) // 1000)"
_SECONDS = "timezone('UTC', make_timestamp(CAST({0} AS BIGINT) * 1000000))"
_NEAR = "(CASE WHEN abs(CAST({{0}} AS DOUBLE)) * {1} > 8.21e18 THEN error('far') ELSE {0} END)"
_DAYS = "CAST(trunc(epoch({0}) / 86400) AS BIGINT)"
_HOURS = "(CAST(trunc(epoch({0}) / 3600) AS BIGINT) % 24)"


def _zones() -> Iterable[Form]:
    yield form("zoned", f"({{}} AT TIME ZONE '{ZONE}')", "time")
    yield form("instant", "({} AT TIME ZONE {})", "time", "#zone")
    for kind in ("zoned", "instant"):
        yield form("time", "({} AT TIME ZONE {})", kind, "#zone")
    for pair in (("zoned", "time"), ("time", "zoned"), ("zoned", "date"), ("zoned", "instant")):
        for sign in ("=", "<", ">="):
            yield form("bool", f"({{}} {sign} {{}})", *pair)
        yield form("bool", "({} IS DISTINCT FROM {})", *pair)
        yield form("bool", "({} BETWEEN {} AND {})", *pair, pair[1])
        yield form("bool", "({} IN ({}, {}))", *pair, pair[1])
    for pair in (("zoned", "time"), ("time", "zoned"), ("zoned", "instant")):
        yield form("span", "({} - {})", *pair, **_APART)
    yield form("zoned", "coalesce({}, {})", "zoned", "time")
    yield form("zoned", "greatest({}, {})", "zoned", "time")
    yield form("zoned", "CASE WHEN {} THEN {} ELSE {} END", "bool", "zoned", "time")
    yield form("bool", "({} >= '2024-11-03')", "zoned")
    yield form("bool", "({} < '2024-11-03 02:00+01')", "zoned")
    yield form("bool", "({} <> TIMESTAMPTZ '2024-11-03 06:30Z')", "zoned")


FORMS = (
    *_numbers(), *_texts(), *_truths(), *_choices(), *_lists(), *_casts(), *_times(), *_zones()
)  # fmt: skip
