"""Functions of values of any type, and of lists."""

from __future__ import annotations

from penstock.query.functions.entry import SKIPS, STRICT, row

VALUES = (
    row(
        "coalesce(x, ...)",
        "the common type",
        "the first that is not NULL",
        "coalesce(NULL, 2)",
        "2",
    ),
    row(
        "ifnull(x, y)",
        "the common type",
        "y if x is NULL",
        "ifnull(NULL, 2)",
        "2",
        "PostgreSQL has only coalesce",
    ),
    row("nullif(x, y)", "as x", "NULL if x is", "nullif(1, 1)", "NULL"),
    row("greatest(x, ...)", "the common type", "skips NULL", "greatest(1, NULL, 3)", "3"),
    row("least(x, ...)", "the common type", "skips NULL", "least(1, NULL, 3)", "1"),
    row(
        "if(condition, x, y)",
        "the common type",
        "y if the condition is NULL",
        "if(1 = NULL, 1, 2)",
        "2",
        "PostgreSQL has only CASE",
    ),
    row(
        "array_length(l)",
        "Int64",
        STRICT,
        "array_length(ARRAY[3, 2])",
        "2",
        "takes the dimension too",
    ),
    row(
        "array_get(l, n)",
        "of an element",
        STRICT,
        "array_get(ARRAY[3, 2], 1)",
        "3",
        "`l[n]` in PostgreSQL",
    ),
    row(
        "array_contains(l, x)",
        "Boolean",
        STRICT,
        "array_contains(ARRAY[3, 2], 2)",
        "true",
        "`x = ANY(l)` in PostgreSQL",
    ),
    row(
        "array_lower(l)",
        "of an element",
        STRICT,
        "array_lower(ARRAY[3, 2])",
        "2",
        "the least index in PostgreSQL; here the least element",
    ),
    row(
        "array_upper(l)",
        "of an element",
        STRICT,
        "array_upper(ARRAY[3, 2])",
        "3",
        "the greatest index in PostgreSQL; here the greatest element",
    ),
    row("array_sum(l)", "a number", SKIPS, "array_sum(ARRAY[3, 2])", "5"),
    row("array_mean(l)", "Float64", STRICT, "array_mean(ARRAY[3, 2])", "2.5"),
    row("array_reverse(l)", "as x", STRICT, "array_reverse(ARRAY[3, 2])", "[2, 3]"),
    row("array_unique(l)", "as x", STRICT, "array_unique(ARRAY[3, 3, 2])", "[3, 2]"),
    row(
        "array_to_string(l, separator)",
        "String",
        STRICT,
        "array_to_string(ARRAY[3, NULL, 2], '-')",
        "'3-2'",
    ),
)
