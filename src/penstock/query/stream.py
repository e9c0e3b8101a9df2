"""The front end: streams and the operators that a user writes on them.

Law: a query is checked while it is built and every mistake in it is reported at once, when a sink
is put on it. Until then mistakes travel with the stream as sentences.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from penstock.base.durations import Duration
from penstock.base.errors import PenstockWarning, QueryError
from penstock.base.problems import Problem, locate
from penstock.query import nodes
from penstock.query.aggregate import aggregate_node
from penstock.query.dedup import dedup_node
from penstock.query.enrich import enrich_node
from penstock.query.explode import explode_node
from penstock.query.expressions import (
    UNKNOWN,
    ExpressionLike,
    check,
    infer_row_wise,
    reserved,
)
from penstock.query.joins import join_node, product_node
from penstock.query.keys import Names
from penstock.query.other_names import no_attribute, or_no_window
from penstock.query.process import process_node
from penstock.query.processes import BatchProcess, Process
from penstock.query.sinks import Sinks
from penstock.query.spark_types import casts_for_spark
from penstock.query.top import Top, top_node
from penstock.query.windows import CountWindow, TimeWindow, Window

__all__ = ["Sinks", "Stream"]


class Stream:
    """A stream of rows with an event time; each method returns a new stream.

    >>> import penstock as ps
    >>> calls = ps.from_rows([{"src": "a", "ts": ps.at("2024-01-01 00:00:00"), "n": 1}], time="ts")
    >>> per_minute = calls.aggregate(by="src", window=ps.tumbling("1 minute"), total="sum(n)")
    >>> list(per_minute.schema)
    ['src', 'window_start', 'window_end', 'total']
    """

    def __init__(self, node: nodes.Node, problems: tuple[Problem, ...] = ()) -> None:
        """Wrap a node; streams are made by the functions of `penstock`, not by hand."""
        self._node = node
        self._problems = problems

    def __repr__(self) -> str:
        """Return the operator that gives the stream, its columns, and its mistakes if it has any.

        >>> import penstock as ps
        >>> ps.from_rows([{"a": 1, "ts": ps.at("2024-01-01")}], time="ts").filter("a > 0")
        <Stream: filter a > 0; a Int64, ts Datetime('us')>
        """
        columns = ", ".join(f"{name} {_type(dtype)}" for name, dtype in self._node.schema.items())
        count = len(self._problems)
        wrong = f"; {count} mistake{'s' if count != 1 else ''}" if count else ""
        return f"<Stream: {self._node.title}; {columns}{wrong}>"

    if not TYPE_CHECKING:  # for type checkers a stream has its own methods only

        def __getattr__(self, name: str) -> Any:
            """Say what a method of PySpark's or Polars' is called here."""
            raise AttributeError(no_attribute(name), name=name, obj=self)

    @property
    def schema(self) -> dict[str, pl.DataType]:
        """The columns of the stream and their types."""
        return dict(self._node.schema)

    def map(self, **columns: ExpressionLike) -> Stream:
        """Add or replace columns; the other columns and the event time stay.

        >>> import penstock as ps
        >>> s = ps.from_rows([{"a": 1, "ts": ps.at("2024-01-01")}], time="ts")
        >>> s.map(b="a + 1", c=pl.col("a") * 2).schema["c"]
        Int64
        """
        return self._map("map", columns, keep=True)

    def select(self, *names: str, **columns: ExpressionLike) -> Stream:
        """Keep only the named columns, ``"*"`` for all, and the computed ones.

        The event time stays attached.
        """
        every = tuple(self._node.schema)
        names = tuple(n for name in names for n in (every if name == "*" else (name,)))
        found: dict[str, ExpressionLike] = {name: pl.col(name) for name in names}
        clash = [f"select: column {name!r} is given twice" for name in names if name in columns]
        return self._map("select", found | columns, keep=False, problems=clash)

    def _map(
        self,
        verb: str,
        columns: Mapping[str, ExpressionLike],
        *,
        keep: bool,
        problems: Iterable[str] = (),
    ) -> Stream:
        found = list(problems)
        if not columns:
            found.append(f"{verb}: no columns given")
        schema = dict(self._node.schema) if keep else {}
        parsed = []
        for name, expression in columns.items():
            found += reserved(verb, name)
            value, dtype = self._check(f"{verb} {name}", expression, infer_row_wise, found)
            schema[name] = dtype
            parsed.append((name, value.alias(name)))
        texts = tuple(_text(expression) for expression in columns.values())
        node = nodes.Map(
            inputs=(self._node,), schema=schema, columns=tuple(parsed), keep=keep, texts=texts
        )
        return self._then(node, found)

    def filter(self, predicate: ExpressionLike) -> Stream:
        """Keep the rows for which the predicate is true; null counts as not true."""
        found: list[str] = []
        value = self._predicate("filter", predicate, found)
        node = nodes.Filter(
            inputs=(self._node,), schema=self._node.schema, predicate=value, text=_text(predicate)
        )
        return self._then(node, found)

    def route(self, *predicates: ExpressionLike, rest: bool = False) -> tuple[Stream, ...]:
        """Split the stream: each row goes to the output of the first predicate that is true.

        Args:
            predicates: One for each output, tried from left to right.
            rest: Whether a last output takes the rows that no predicate took.

        >>> import penstock as ps
        >>> s = ps.from_rows([{"a": 1, "ts": ps.at("2024-01-01")}], time="ts")
        >>> small, large, other = s.route("a < 10", "a > 100", rest=True)
        """
        if not predicates:  # there may be no output to carry the complaint
            raise QueryError(problems=(*self._problems, "route: no predicates given"))
        found: list[str] = []
        values = [self._predicate(f"route {i}", p, found) for i, p in enumerate(predicates)]
        outputs = [
            self._branch(
                [*[~earlier for earlier in values[:i]], value], _text(predicates[i]), found
            )
            for i, value in enumerate(values)
        ]
        if rest:
            outputs.append(self._branch([~value for value in values], "rest", found))
        return tuple(outputs)

    def _branch(self, conditions: list[pl.Expr], text: str, found: list[str]) -> Stream:
        predicate = pl.all_horizontal(conditions) if conditions else pl.lit(True)
        node = nodes.Filter(
            inputs=(self._node,),
            schema=self._node.schema,
            predicate=predicate,
            text=text,
            label="route",
        )
        return self._then(node, found)

    def union(self, *others: Stream) -> Stream:
        """Merge this stream with others that have the same columns and types."""
        found: list[str] = [] if others else ["union: no other stream given"]
        for i, other in enumerate(others, 1):
            found += _schema_clash(i, self._node.schema, other._node.schema)
        inputs = (self._node, *[other._node for other in others])
        earlier = [p for other in others for p in other._problems if p not in self._problems]
        node = nodes.Union(inputs=inputs, schema=self._node.schema)
        return self._then(node, [*earlier, *found])

    def apply(
        self,
        function: Callable[[pl.DataFrame], pl.DataFrame],
        *,
        schema: Mapping[str, Any],
        name: str | None = None,
    ) -> Stream:
        """Run a function over frames of rows.

        The function gets any number of rows and returns one row for each, in order, with the
        declared columns. Each result row must depend on its own input row alone. Rows for which it
        raises go to the dead-letter output.

        Args:
            function: From a Polars frame to a Polars frame of the same height.
            schema: The columns and types that it returns.
            name: What to call it in plans and errors; the function's own name unless given.
        """
        label = name or str(getattr(function, "__name__", "function"))
        found = [problem for column in schema for problem in reserved(f"apply {label}", column)]
        if not schema:
            found.append(f"apply {label}: the output schema is empty")
        declared = {column: _dtype(dtype) for column, dtype in schema.items()}
        node = nodes.Apply(inputs=(self._node,), schema=declared, function=function, name=label)
        return self._then(node, found)

    def explode(self, column: str) -> Stream:
        """Make one row of each element of a list column; an empty or null list gives none.

        Where the elements are structs, their fields become columns. The event time stays.

        >>> import penstock as ps
        >>> s = ps.from_rows([{"tags": ["a", "b"], "ts": ps.at("2024-01-01")}], time="ts")
        >>> s.explode("tags").schema["tags"]
        String
        """
        node, found = explode_node(self._node, column)
        return self._then(node, found)

    def spread(self) -> Stream:
        """Begin a subquery with instances of its own; rows, columns and event time stay.

        What follows without state runs on all of its instances, each with a part of the rows. So an
        expensive `apply` behind few files, or behind an aggregate with few keys, gets as many
        instances as it needs: with ``instances`` at the start, or ``query.rescale("spread-0", 8)``.
        With one instance nothing is shuffled.

        >>> import penstock as ps
        >>> s = ps.from_rows([{"a": 1, "ts": ps.at("2024-01-01")}], time="ts")
        >>> s.spread().map(b="a * 2").schema["b"]
        Int64
        """
        return self._then(nodes.Spread(inputs=(self._node,), schema=self._node.schema), [])

    def process(self, processor: Process | BatchProcess, *, by: Names) -> Stream:
        """Run an operator of your own: keyed, stateful, in stream order.

        The result has the key columns and the declared output; its event time is that of the row or
        timer that it belongs to. Rows are worked on once the watermark has passed them.

        Args:
            processor: An object of a class that derives from `Process` or `BatchProcess`.
            by: The key columns; ``()`` means one key for the whole stream.

        >>> import penstock as ps
        >>> class Steps(ps.Process):
        ...     state = {"x": pl.Int64}
        ...     output = {"step": pl.Int64}
        ...     def on_row(self, row, context):
        ...         if context.state is not None:
        ...             yield {"step": row["x"] - context.state["x"]}
        ...         context.state = {"x": row["x"]}
        >>> s = ps.from_rows([{"k": "a", "x": 1, "ts": ps.at("2024-01-01")}], time="ts")
        >>> list(s.process(Steps(), by="k").schema)
        ['k', 'step']
        """
        node, found = process_node(self._node, processor, by)
        return self._then(node, found)

    def join(
        self,
        right: Stream,
        *,
        within: Duration | CountWindow,
        on: Names | None = None,
        left_on: Names | None = None,
        right_on: Names | None = None,
        where: ExpressionLike | None = None,
        how: str = "inner",
        suffix: str = "_right",
        self_pairs: bool | None = None,
    ) -> Stream:
        """Pair the rows of two streams that have equal keys and are close.

        The result has all columns of this stream, then those of the other except keys given with
        ``on``. Its event time is the later one of the pair. A null key equals none. A stream that
        is joined with itself gives both orders of a pair, and no row is paired with itself unless
        ``self_pairs`` asks for it.

        Args:
            right: The other stream, or this one again.
            within: Pairs are less than this apart in event time. With `count_window`, a row is
                paired with the last rows of the other side before it that have its key.
            on: The keys, if both streams call them the same.
            left_on: The keys of this stream.
            right_on: The keys of the other, in the same order.
            where: A further predicate over the columns of the result.
            how: ``inner``; ``left`` also gives rows of this stream that have no partner, once the
                watermark has passed them by ``within``, which is then their event time; ``full``
                those of both.
            suffix: What is added to a column of the other stream whose name is taken.
            self_pairs: Whether a row is paired with itself where this stream is joined with itself,
                as in SQL. Without it, it is not; where the sides are made of one stream in
                different ways (two filters of it, say) they are two streams like any others.

        >>> import penstock as ps
        >>> s = ps.from_rows([{"k": "a", "x": 1, "ts": ps.at("2024-01-01")}], time="ts")
        >>> list(s.join(s, on="k", within="1 minute", where="x < x_right").schema)
        ['k', 'x', 'ts', 'x_right', 'ts_right']
        """
        node, found = join_node(
            self._node,
            right._node,
            on=on,
            left_on=left_on,
            right_on=right_on,
            within=within,
            where=where,
            how=how,
            suffix=suffix,
            self_pairs=self_pairs,
        )
        return self._with(right, node, found)

    def product(
        self,
        right: Stream,
        *,
        where: ExpressionLike,
        within: Duration | CountWindow,
        suffix: str = "_right",
        self_pairs: bool | None = None,
    ) -> Stream:
        """Pair the rows of two streams for which any predicate is true, and that are close.

        As `join`, but without keys: every row is compared with every row of the other stream within
        the window, so it costs much more.

        Args:
            right: The other stream, or this one again.
            where: The predicate, over the columns of the result.
            within: Pairs are less than this apart in event time. With `count_window`, a row is
                compared with the last rows of the other stream before it.
            suffix: What is added to a column of the other stream whose name is taken.
            self_pairs: Whether a row is compared with itself, as in `join`.

        >>> import penstock as ps
        >>> s = ps.from_rows([{"x": 1, "ts": ps.at("2024-01-01")}], time="ts")
        >>> list(s.product(s, where="x < x_right", within="1 minute").schema)
        ['x', 'ts', 'x_right', 'ts_right']
        """
        node, found = product_node(
            self._node,
            right._node,
            where=where,
            within=within,
            suffix=suffix,
            self_pairs=self_pairs,
        )
        return self._with(right, node, found)

    def _with(self, other: Stream, node: nodes.Node, found: Iterable[str]) -> Stream:
        earlier = [problem for problem in other._problems if problem not in self._problems]
        return self._then(node, [*earlier, *found])

    def dedup(self, *, by: Names, within: Duration | None = None) -> Stream:
        """Keep the first row of each key, in stream order; columns and event time stay.

        Args:
            by: The key columns.
            within: A row is dropped if the last *kept* row of its key came less than this before
                it. Without it a key is remembered for ever, which is state that only grows.

        >>> import penstock as ps
        >>> s = ps.from_rows([{"id": 1, "ts": ps.at("2024-01-01")}], time="ts")
        >>> s.dedup(by="id", within="1 hour").schema == s.schema
        True
        """
        node, found = dedup_node(self._node, by, within)
        return self._then(node, found)

    def enrich(
        self,
        table: Stream | pl.DataFrame | str | Path,
        *,
        on: Names,
        how: str = "left",
        suffix: str = "_right",
    ) -> Stream:
        """Add the columns of a table by key; the event time stays.

        Args:
            table: A frame, or the path of a Parquet file that is read now: at most one row for a
                key. Or a stream: a table that changes, of which each row gets the newest row of its
                key that is not later than itself.
            on: The key columns, in both. A null key is found nowhere.
            how: ``left`` gives nulls to rows whose key is not found, ``inner`` drops them.
            suffix: What is put after the name of a column that the stream has too.

        >>> import penstock as ps
        >>> s = ps.from_rows([{"cell": 1, "ts": ps.at("2024-01-01")}], time="ts")
        >>> list(s.enrich(pl.DataFrame({"cell": [1], "city": ["Oslo"]}), on="cell").schema)
        ['cell', 'ts', 'city']
        """
        given = table._node if isinstance(table, Stream) else table
        node, found = enrich_node(self._node, given, on=on, how=how, suffix=suffix)
        theirs = table._problems if isinstance(table, Stream) else ()
        return self._then(node, [*[p for p in theirs if p not in self._problems], *found])

    def aggregate(self, *, window: Window, by: Names = (), **values: ExpressionLike) -> Stream:
        """Aggregate per group and window.

        The result has the grouping columns, ``window_start``, ``window_end`` and the values; its
        event time is the window's end. A window is written once, when the watermark reaches its
        end. Any arithmetic around aggregates works; what cannot be merged keeps its rows.

        Args:
            window: `tumbling`, `sliding`, `count_window` or `session`.
            by: The grouping columns; none means one group.
            values: Named aggregate expressions, such as ``calls="count(*)"``.
        """
        window, wrong = or_no_window(window)
        node, found = aggregate_node(
            self._node, by=by, window=window, values=values, sound=not self._problems
        )
        return self._then(node, [*(f"aggregate: {problem}" for problem in wrong), *found])

    def top(
        self,
        k: int,
        order: ExpressionLike,
        *,
        by: Names = (),
        window: TimeWindow | None = None,
        descending: bool = True,
    ) -> Stream:
        """Keep the k first rows by an expression, with their ``rank`` from 1 on.

        Without a window: of the rows of a group with the same event time, which after an aggregate
        means of a window (elsewhere there is a `PenstockWarning`); the event time stays. With one:
        of its rows; then ``window_start`` and ``window_end`` are added and the event time is the
        window's end. Nulls come last; rows that tie are in stream order, then by their columns.

        Args:
            k: How many rows of a group to keep.
            order: What to order by.
            by: The grouping columns; none means one group.
            window: `tumbling` or `sliding`.
            descending: Whether the largest come first.

        >>> import penstock as ps
        >>> s = ps.from_rows([{"url": "a", "ts": ps.at("2024-01-01")}], time="ts")
        >>> hits = s.aggregate(by="url", window=ps.tumbling("1 hour"), n="count(*)")
        >>> list(hits.top(10, "n").schema)
        ['url', 'window_start', 'window_end', 'n', 'rank']
        """
        found: list[str] = []
        value, dtype = self._check("top", order, infer_row_wise, found)
        node, more = top_node(
            self._node,
            k=k,
            order=value,
            dtype=dtype,
            text=_text(order),
            by=by,
            window=window,
            descending=descending,
        )
        if window is None and isinstance(node, Top) and node.lonely:
            warnings.warn(
                "top without a window compares only rows of the same event time; say window=, "
                "as in window=ps.tumbling('1 minute'), or put it after an aggregate",
                PenstockWarning,
                stacklevel=2,
            )
        return self._then(node, [*found, *more])

    def write_parquet(
        self, folder: str | Path, *, ordered: bool = False, mode: str = "error"
    ) -> Sinks:
        """Write results to a folder; each epoch appears whole, as ``epoch=N/``, exactly once.

        The folder belongs to the query's checkpoint from its first start on.

        Args:
            folder: A path or a URI.
            ordered: Whether rows come in stream order.
            mode: What a start does if the folder has epochs of another checkpoint: ``error``
                refuses it, ``append`` writes after them, ``overwrite`` removes them, once. A start
                that goes on from the same checkpoint does nothing of this.
        """
        return self.write_to("parquet", str(folder), ordered=ordered, mode=mode)

    def write_memory(self, name: str = "results", *, ordered: bool = False) -> Sinks:
        """Keep results in the driver's memory; read them with ``query.table(name)``."""
        return self.write_to("memory", name, ordered=ordered)

    def write_console(self, rows: int = 20, *, ordered: bool = False) -> Sinks:
        """Print each epoch's results, at most ``rows`` of them."""
        return self.write_to("console", rows, ordered=ordered)

    def foreach_batch(
        self, function: Callable[[Any, int], None], *, ordered: bool = False
    ) -> Sinks:
        """Call ``function(spark_frame, epoch)`` with each epoch's results.

        After a crash the call may be repeated with the same epoch number and the same rows. A time
        with a zone is a ``timestamp`` of Spark, one without is a ``timestamp_ntz``; docs/queries.md
        has all types.
        """
        casts, found = casts_for_spark(self._node.schema)
        stream = self._then(self._node, found)
        stream = stream.map(**casts) if casts else stream
        return stream.write_to("foreach_batch", function, ordered=ordered)

    def write_to(
        self, kind: str, target: Any = None, *, ordered: bool = False, mode: str = "error"
    ) -> Sinks:
        """Write results to a sink of any kind, such as one of your own.

        Args:
            kind: What kind of sink it is, by its key in `penstock.sinks.registry`.
            target: Where results go; what that can be depends on the kind.
            ordered: Whether rows come in stream order.
            mode: What becomes of the epochs of others at the target.
        """
        problems = list(self._problems)
        if mode not in nodes.MODES:
            allowed = ", ".join(nodes.MODES)
            problems += locate([f"write_{kind}: mode={mode!r}; allowed: {allowed}"])
        if problems:
            raise QueryError(problems=problems)
        node = nodes.Sink(
            inputs=(self._node,),
            schema=self._node.schema,
            kind=kind,
            target=target,
            ordered=ordered,
            mode=mode,
        )
        return Sinks((node,))

    def _predicate(self, verb: str, predicate: ExpressionLike, found: list[str]) -> pl.Expr:
        value, dtype = self._check(verb, predicate, infer_row_wise, found)
        if dtype not in (pl.Boolean(), UNKNOWN):
            found.append(f"{verb}: a predicate must be true or false; it is {dtype}")
        return value.fill_null(False)

    def _check(
        self,
        verb: str,
        expression: ExpressionLike,
        infer: Callable[..., pl.DataType],
        found: list[str],
    ) -> tuple[pl.Expr, pl.DataType]:
        return check(verb, expression, self._node.schema, infer, found)

    def _then(self, node: nodes.Node, found: Iterable[str]) -> Stream:
        return Stream(node, (*self._problems, *locate(dict.fromkeys(found))))


def _text(expression: ExpressionLike) -> str:
    if isinstance(expression, pl.Expr) and expression.meta.is_column():
        return expression.meta.output_name()
    return str(expression)


def _schema_clash(
    index: int, left: Mapping[str, pl.DataType], right: Mapping[str, pl.DataType]
) -> list[str]:
    if UNKNOWN in left.values() or UNKNOWN in right.values():
        return []
    if set(left) != set(right):
        odd = sorted(set(left) ^ set(right))
        return [f"union: input {index} has other columns; not in both: {', '.join(odd)}"]
    return [
        f"union: input {index} has type {right[name]} for {name!r}; expected {left[name]}"
        for name in left
        if left[name] != right[name]
    ]


def _type(dtype: pl.DataType) -> str:
    """Return a type's name as a reader of a schema expects it, short where it has parameters."""
    if isinstance(dtype, pl.Datetime):
        zone = f", {dtype.time_zone!r}" if dtype.time_zone else ""
        return f"Datetime({dtype.time_unit!r}{zone})"
    return "unknown" if dtype == UNKNOWN else str(dtype)


def _dtype(dtype: Any) -> pl.DataType:
    return pl.DataFrame(schema={"_": dtype}).schema["_"]
