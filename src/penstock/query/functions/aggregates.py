"""Functions of the rows of a group; their examples are over `penstock.query.functions.ROWS`."""

from __future__ import annotations

from dataclasses import replace

from penstock.query.functions.entry import SAME, SKIPS, row

_FIRST = "of rows that tie the first in stream order; PostgreSQL has none"
_PAIRS = "skips rows in which either is NULL"
_ORDER = (
    "in stream order, unless told by ORDER BY, where NULL is last unless told; "
    "PostgreSQL gives any order, and has NULL first after DESC"
)

AGGREGATES = tuple(
    replace(entry, aggregate=True)
    for entry in (
        row("count(*)", "Int64", "counts rows", "count(*)", "4"),
        row("count([DISTINCT] x)", "Int64", "skips NULL", "count(DISTINCT s)", "2"),
        row(
            "sum(x)",
            "Int64, or as x; DECIMAL(38, s)",
            f"{SKIPS}; refused if it does not fit",
            "sum(x)",
            "8",
        ),
        row(
            "avg(x)",
            "Float64; DECIMAL(38, s + 4); an interval",
            SKIPS,
            "avg(x)",
            "2.6666666666666665",
        ),
        row("min(x)", SAME, f"{SKIPS}; NaN is the greatest", "min(s)", "'a'"),
        row("max(x)", SAME, f"{SKIPS}; NaN is the greatest", "max(x)", "5"),
        row(
            "first(x)",
            SAME,
            "takes NULL too",
            "first(x)",
            "2",
            "PostgreSQL has none",
            also=["first_value"],
        ),
        row("last(x)", SAME, "takes NULL too", "last(y)", "4.0", "PostgreSQL has none"),
        row(
            "median(x)", "Float64", SKIPS, "median(x)", "2.0", "PostgreSQL has only percentile_cont"
        ),
        row(
            "quantile_cont(x, q)",
            "Float64",
            SKIPS,
            "quantile_cont(y, 0.5)",
            "2.0",
            "percentile_cont in PostgreSQL",
        ),
        row(
            "quantile_disc(x, q)",
            "Float64",
            SKIPS,
            "quantile_disc(x, 0.5)",
            "2.0",
            "percentile_disc in PostgreSQL",
        ),
        row(
            "variance(x)",
            "Float64",
            "skips NULL; NULL for less than two",
            "round(variance(x), 3)",
            "4.333",
            also=["var", "var_samp"],
        ),
        row(
            "stddev(x)",
            "Float64",
            "skips NULL; NULL for less than two",
            "round(stddev(x), 3)",
            "2.082",
            also=["stddev_samp", "stdev", "stdev_samp"],
        ),
        row("var_pop(x)", "Float64", SKIPS, "round(var_pop(x), 3)", "2.889"),
        row("stddev_pop(x)", "Float64", SKIPS, "round(stddev_pop(x), 3)", "1.7"),
        row(
            "max_by(x, y)",
            SAME,
            "skips rows in which y is NULL",
            "max_by(s, y)",
            "'b'",
            f"{_FIRST}; DuckDB skips rows in which x is NULL too",
            also=["arg_max"],
        ),
        row(
            "min_by(x, y)",
            SAME,
            "skips rows in which y is NULL",
            "min_by(s, x)",
            "'a'",
            f"{_FIRST}; DuckDB skips rows in which x is NULL too",
            also=["arg_min"],
        ),
        row("bool_and(p)", "Boolean", SKIPS, "bool_and(ok)", "false", also=["every"]),
        row("bool_or(p)", "Boolean", SKIPS, "bool_or(ok)", "true"),
        row(
            "count_if(p)",
            "Int64",
            "counts no NULL",
            "count_if(x > 1)",
            "2",
            "PostgreSQL has only FILTER",
            also=["countif"],
        ),
        row("corr(x, y)", "Float64", _PAIRS, "corr(x, y)", "1.0"),
        row("covar_pop(x, y)", "Float64", _PAIRS, "covar_pop(x, y)", "1.875"),
        row("covar_samp(x, y)", "Float64", _PAIRS, "covar_samp(x, y)", "3.75", also=["covar"]),
        row(
            "array_agg([DISTINCT] x)",
            "List",
            "keeps NULL",
            "array_agg(x)",
            "[2, 1, NULL, 5]",
            _ORDER,
        ),
        row(
            "string_agg(s, separator)",
            "String",
            SKIPS,
            "string_agg(s, '-' ORDER BY s)",
            "'a-b-b'",
            _ORDER,
        ),
        row(
            "approx_count_distinct(x)",
            "Int64",
            "skips NULL",
            "approx_count_distinct(s)",
            "2",
            "within about 2 %; PostgreSQL has none",
            also=["approx_distinct"],
        ),
        row(
            "approx_quantile(x, q)",
            "Float64",
            SKIPS,
            "round(approx_quantile(x, 0.5), 1)",
            "2.0",
            "within 1 % of the value; PostgreSQL has none",
            also=["approx_percentile"],
        ),
    )
)
