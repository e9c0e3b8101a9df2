"""The grammar of aggregates."""

from __future__ import annotations

from dataclasses import replace

from bench.differ.form import COMPARED, form

_FITTING = (
    "(CASE WHEN typeof(min({0})) = 'HUGEINT' OR sum({0}) IS NULL OR sum({0}) BETWEEN "
    "CASE typeof(min({0})) WHEN 'UBIGINT' THEN 0 ELSE -9223372036854775808 END AND "
    "CASE typeof(min({0})) WHEN 'UBIGINT' THEN 18446744073709551615 ELSE 9223372036854775807 END "
    "THEN sum({0}) ELSE error('does not fit') END)"
)
_UNITS = "CAST(sum({0}) * 1000000 AS HUGEINT)"
_HALVES_UP = f"(2 * abs({_UNITS}) + count({{0}})) // (2 * count({{0}}))"
_EXACT = f"CAST(sign({_UNITS}) * ({_HALVES_UP}) AS DECIMAL(18, 0)) * 0.000001"
_BY = {"max": "arg_max_null({0}, {1})", "min": "arg_min_null({0}, {1})"}

_ONE = "(CASE WHEN bool_or(isinf({{0}}) OR isnan({{0}})) THEN 'nan'::DOUBLE ELSE {}({{0}}) END)"
_OF_ROWS = (
    form("float", "median({})", "int"),
    form("float", "quantile_cont({}, 0.25)", "int"),
    form("int", "quantile_disc({}, 0.5)", "int", judge="CAST(quantile_disc({0}, 0.5) AS DOUBLE)"),
    form("list", "array_agg({})", "int", judge="array_agg({0} ORDER BY id)"),
    *(
        form("float", f"{name}({{}}, {{}})", "count", "count")
        for name in ("corr", "covar_pop", "covar_samp")
    ),
    *(
        form(kind, f"{name}_by({{}}, {{}})", kind, by, meant="max_by", alike=alike)
        for kind, by in (("text", "int"), ("int", "float"), ("decimal", "time"), ("bool", "text"))
        for name, alike in _BY.items()
    ),
    form("text", "string_agg({}, ',' ORDER BY id)", "text"),
)
"""Those that cannot be merged and keep their rows."""

AGGREGATES = (
    form("int", "count(*)"),
    *(form("int", "count({})", kind) for kind in COMPARED),
    *(form("int", "count(DISTINCT {})", kind) for kind in COMPARED if kind != "span"),
    *(form(kind, f"{name}({{}})", kind) for kind in COMPARED for name in ("min", "max")),
    *(
        form(kind, f"{name}({{}})", kind, judge=f"{name}({{0}} ORDER BY id)")
        for kind in COMPARED
        for name in ("first", "last")
    ),
    *(form(kind, "sum({})", kind) for kind in ("float", "decimal")),
    form("int", "sum({})", "int", meant="sums", alike=_FITTING),
    *(form("float", "avg({})", kind) for kind in ("int", "float")),
    form("decimal", "avg({})", "cents", meant="averages", alike=_EXACT),
    form("float", "CAST(avg({}) AS REAL)", "cents", judge=f"CAST({_EXACT} AS REAL)"),
    *(
        form("float", f"{name}({{}})", kind)
        for name in ("stddev", "variance")
        for kind in ("float", "int")
    ),
    *(form("float", f"{name}({{}})", "int") for name in ("stddev_pop", "var_pop")),
    *(
        form("float", f"{name}({{}})", "float", meant="spread", alike=_ONE.format(name))
        for name in ("stddev_pop", "var_pop")
    ),
    form("bool", "bool_and({})", "bool"),
    form("bool", "bool_or({})", "bool"),
    form("int", "count_if({})", "bool", meant="count_if", alike="count(*) FILTER (WHERE {0})"),
    form("int", "sum({}) FILTER (WHERE {})", "count", "bool"),
    form("int", "count(*) FILTER (WHERE {})", "bool"),
    form("int", "sum(CASE WHEN {} THEN 1 ELSE 0 END)", "bool"),
    form("float", "(sum({}) * 100.0 / count(*))", "count"),
    *(replace(made, keeps=True) for made in _OF_ROWS),
)
