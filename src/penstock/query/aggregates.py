"""Aggregate expressions, taken apart into calls that can be merged.

``sum(x) / count(*)`` becomes the calls ``sum(x)`` and ``len()`` and an outer expression over their
values. Law: for rows in any number of parts, merging the parts' calls and applying the outer
expression gives the value over all rows. What cannot be taken apart keeps its rows instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from penstock.query.expressions import UNKNOWN, ExpressionProblem, infer
from penstock.query.kept import exact
from penstock.query.row_wise import is_row_wise
from penstock.query.sketches import QUANTILE_MARK
from penstock.query.sums import mean_type, sum_type, width
from penstock.query.trees import from_tree, to_tree
from penstock.query.words import in_words

Schema = Mapping[str, pl.DataType]
_PLAIN = {"Sum": "sum", "Mean": "mean", "NUnique": "distinct", "First": "first", "Last": "last"}
_SHOWN = {"mean": "avg", "std": "stddev", "var": "variance"}
ORDERED_CALLS = frozenset({"first", "last"})


class NotMergeable(Exception):  # noqa: N818  # a finding, not a failure
    """An aggregate expression that must keep its rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One aggregate call: a function over a row-wise argument, perhaps filtered.

    ``text`` is how it is told to the user, ``dtype`` the type of the argument.
    """

    function: str
    argument: pl.Expr | None = None
    keep: pl.Expr | None = None
    parameter: float = 0.0
    dtype: pl.DataType | None = None
    text: str = ""

    @property
    def key(self) -> tuple[str, str, str, float]:
        """What makes two calls the same."""
        return self.function, str(self.argument), str(self.keep), self.parameter

    @property
    def form(self) -> str:
        """How partials of the function are kept for its argument.

        >>> Call(function="sum", dtype=pl.Int64()).form, Call(function="max").form
        ('long sum', 'max')
        """
        if self.dtype is None:
            return self.function
        if self.function == "max" and self.dtype.is_float():
            return "float max"
        kept = width(self.dtype) if self.function in ("sum", "mean") else "short"
        return self.function if kept == "short" else f"{kept} {self.function}"

    @property
    def constant(self) -> bool:
        """Whether the call has no column to look at, as in ``sum(1)``."""
        expressions = [e for e in (self.argument, self.keep) if e is not None]
        return bool(expressions) and not any(e.meta.root_names() for e in expressions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregation:
    """The values of an aggregate operator.

    With ``calls`` the values are ``outer`` expressions over the calls' results, columns ``__a0``,
    ``__a1`` and so on. Without, ``outer`` are aggregate expressions over the kept rows.
    ``said`` are the values in the user's words.
    """

    names: tuple[str, ...]
    outer: tuple[pl.Expr, ...]
    calls: tuple[Call, ...] | None
    said: tuple[str, ...] = ()

    @property
    def mergeable(self) -> bool:
        """Whether rows can be combined before they are shuffled."""
        return self.calls is not None

    @property
    def needs_order(self) -> bool:
        """Whether the result depends on the order of rows."""
        return self.calls is None or any(c.function in ORDERED_CALLS for c in self.calls)

    @property
    def reads(self) -> set[str]:
        """The columns that the values are computed from."""
        if self.calls is None:
            read = [*self.outer]
        else:
            read = [e for call in self.calls for e in (call.argument, call.keep) if e is not None]
        return {name for expression in read for name in expression.meta.root_names()}

    @property
    def texts(self) -> list[str]:
        """What is computed, in words that change exactly if its meaning does."""
        if self.calls is None:
            return [str(expression) for expression in self.outer]
        return [
            f"{call.function}({call.argument}) where {call.keep} [{call.parameter}] {call.dtype}"
            for call in self.calls
        ]

    @property
    def merges(self) -> list[str] | None:
        """How partials are merged, so that state can be read without the query."""
        if self.calls is None:
            return None
        return ["constant" if call.constant else call.form for call in self.calls]


def take_apart(values: Mapping[str, pl.Expr], schema: Schema) -> Aggregation:
    """Return the aggregation of named aggregate expressions over a schema.

    >>> a = take_apart({"mean": pl.col("x").sum() / pl.len()}, {"x": pl.Int64()})
    >>> [call.function for call in a.calls], str(a.outer[0])
    (['sum', 'len'], '[(col("__a0")) / (col("__a1"))]')
    >>> take_apart({"m": pl.col("x").median()}, {"x": pl.Int64()}).mergeable
    False
    """
    calls: list[Call] = []
    try:
        outer = tuple(_outer(expression, calls, schema) for expression in values.values())
    except NotMergeable:
        kept = tuple(exact(expression, schema) for expression in values.values())
        return Aggregation(names=tuple(values), outer=kept, calls=None)
    return Aggregation(names=tuple(values), outer=outer, calls=tuple(calls))


def infer_aggregate(expression: pl.Expr, schema: Schema) -> pl.DataType:
    """Return the type of an expression that must give one value per group."""
    dtype = infer(expression, schema)
    trial = pl.LazyFrame(schema={"__k": pl.Int8(), **schema}).group_by("__k")
    try:
        grouped = trial.agg(expression.alias("__v")).collect_schema()["__v"]
    except pl.exceptions.PolarsError as error:
        raise ExpressionProblem(str(error).splitlines()[0]) from error
    if isinstance(grouped, pl.List) and not isinstance(dtype, pl.List):
        raise ExpressionProblem("not an aggregate; wrap the column, as in sum(x) or max(x)")
    return grouped


def _outer(expression: pl.Expr, calls: list[Call], schema: Schema) -> pl.Expr:
    try:
        rewritten = from_tree(_rewrite(to_tree(expression), calls, schema))
    except pl.exceptions.PolarsError as error:  # a Python function, or a literal NaN
        raise NotMergeable from error
    roots = rewritten.meta.root_names()
    if not roots or any(not name.startswith("__a") for name in roots):
        raise NotMergeable
    if not is_row_wise(rewritten, {name: pl.Int64() for name in roots}):
        raise NotMergeable
    return rewritten


def _rewrite(node: Any, calls: list[Call], schema: Schema) -> Any:
    call = _call(node)
    if call is not None:
        return {"Column": f"__a{_number(_check(call, schema), calls)}"}
    if isinstance(node, dict):
        return {
            key: _rewrite(child, calls, schema) if key not in ("Literal", "Column") else child
            for key, child in node.items()
        }
    if isinstance(node, list):
        return [_rewrite(child, calls, schema) for child in node]
    return node


def _number(call: Call, calls: list[Call]) -> int:
    for i, known in enumerate(calls):
        if known.key == call.key:
            return i
    calls.append(call)
    return len(calls) - 1


def _call(node: Any) -> Call | None:
    if node == "Len":
        return Call(function="len")
    if not isinstance(node, dict) or len(node) != 1:
        return None
    ((kind, body),) = node.items()
    if kind == "Agg":
        return _agg_call(body)
    if kind == "Function":
        return _function_call(body)
    return None


def _agg_call(body: dict[str, Any]) -> Call:
    ((name, argument),) = body.items()
    if name in _PLAIN:
        return _with_argument(_PLAIN[name], argument)
    if name == "Max" or (name == "Min" and not argument.get("propagate_nans", False)):
        return _with_argument(name.lower(), argument["input"])
    if name == "Count":
        function = "size" if argument["include_nulls"] else "count"
        return _with_argument(function, argument["input"])
    if name in ("Var", "Std"):
        return _with_argument(name.lower(), argument[0], float(argument[1]))
    raise NotMergeable


def _function_call(body: dict[str, Any]) -> Call | None:
    function = body.get("function")
    if function == "ApproxNUnique":
        return _with_argument("approx_distinct", body["input"][0])
    if isinstance(function, dict) and "Quantile" in function:
        alias = body["input"][0].get("Alias") if isinstance(body["input"][0], dict) else None
        if alias and alias[1] == QUANTILE_MARK:
            q = body["input"][1]["Literal"]["Dyn"]["Float"]
            return _with_argument("approx_quantile", alias[0], float(q))
        raise NotMergeable
    return None


def _with_argument(function: str, tree: Any, parameter: float = 0.0) -> Call:
    keep = None
    if isinstance(tree, dict) and set(tree) == {"Filter"}:
        tree, keep = tree["Filter"]["input"], from_tree(tree["Filter"]["by"])
    elif isinstance(tree, dict) and tree.get("Function", {}).get("function") == "DropNulls":
        tree = tree["Function"]["input"][0]
        keep = from_tree(tree).is_not_null()
    return Call(function=function, argument=from_tree(tree), keep=keep, parameter=parameter)


def _check(call: Call, schema: Schema) -> Call:
    if call.argument is None:
        return call
    parts = [call.argument] + ([call.keep] if call.keep is not None else [])
    if not all(is_row_wise(part, schema) for part in parts):
        raise NotMergeable
    if call.function in ORDERED_CALLS and call.keep is not None:
        raise NotMergeable
    try:
        dtype = infer(call.argument, schema)
    except ExpressionProblem as error:
        raise NotMergeable from error
    if not _is_supported(call.function, dtype):
        raise NotMergeable
    return replace(
        call,
        dtype=dtype,
        text=f"{_SHOWN.get(call.function, call.function)}({in_words(call.argument)})",
    )


def _is_supported(function: str, dtype: pl.DataType) -> bool:
    if dtype == pl.UInt128():
        return False
    if function in ("var", "std", "approx_quantile"):
        return dtype.is_numeric()
    if function in ("sum", "mean"):
        return dtype.is_numeric() or isinstance(dtype, pl.Duration) or dtype == pl.Boolean
    return not dtype.is_nested()


def result_type(call: Call) -> pl.DataType:
    """Return the type of a call's result: counts are ``Int64``, sums have 64 bits or 38 digits."""
    if call.function in ("len", "size", "count", "distinct", "approx_distinct"):
        return pl.Int64()
    if call.function in ("var", "std", "approx_quantile"):
        return pl.Float64()
    dtype = call.dtype or UNKNOWN
    if call.function in ("sum", "mean"):
        return sum_type(dtype) if call.function == "sum" else mean_type(dtype)
    return dtype


def value_types(aggregation: Aggregation, schema: Schema) -> dict[str, pl.DataType]:
    """Return the types of an aggregation's values."""
    if aggregation.calls is None:
        return {
            name: infer_aggregate(expression, schema)
            for name, expression in zip(aggregation.names, aggregation.outer, strict=True)
        }
    results = {f"__a{i}": result_type(call) for i, call in enumerate(aggregation.calls)}
    return {
        name: infer(expression, results)
        for name, expression in zip(aggregation.names, aggregation.outer, strict=True)
    }
