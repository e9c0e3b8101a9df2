"""The logical query: a graph of frozen nodes, made by `penstock.query.stream`.

Law: a node that exists has a schema; what is wrong with a query is a sentence in ``problems`` of
the stream that holds the node, never a half-made node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import polars as pl

from penstock.query.aggregates import Aggregation
from penstock.query.windows import CountWindow, TimeWindow, Window, zone_of


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Node:
    """One operator of the logical query."""

    inputs: tuple[Node, ...] = ()
    schema: Mapping[str, pl.DataType] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "schema", MappingProxyType(dict(self.schema)))

    @property
    def stateful(self) -> bool:
        """Whether the operator keeps rows or results from one epoch to the next."""
        return False

    @property
    def begins(self) -> bool:
        """Whether a subquery begins with the operator, however the query is split."""
        return self.stateful

    @property
    def title(self) -> str:
        """What the operator does, in a few words."""
        return type(self).__name__.lower()

    @property
    def note(self) -> str:
        """How the operator works, for plans; may be empty."""
        return ""

    @property
    def combines(self) -> bool:
        """Whether rows for the operator are combined to fewer before they are shuffled."""
        return False

    @property
    def alone(self) -> bool:
        """Whether the operator has one instance, because it looks at the stream as a whole."""
        return False

    @property
    def after_us(self) -> int:
        """How far the watermark of the results is past that of the input, in microseconds.

        An operator that has written every result up to its input's watermark is one microsecond
        further.
        """
        return 0

    @property
    def zone(self) -> str | None:
        """The time zone that the event time is shown in; None if it has none and counts as UTC."""
        return self.inputs[0].zone if self.inputs else None

    def keys(self, port: int) -> tuple[str, ...] | None:
        """Return the columns by which rows of an input are routed; None spreads them evenly."""
        return () if self.stateful else None

    def grid(self, port: int) -> str:
        """Return where rows of an input go on a grid of cells; empty if there is no grid.

        ``row``: to the cells of their row; ``column``: of their column; ``cross``: of both;
        ``all``: to every cell.
        """
        return ""

    @property
    def ways(self) -> tuple[str, ...]:
        """Where the rows of each input go on a grid of cells; empty if there is no grid."""
        return tuple(way for port in range(len(self.inputs)) if (way := self.grid(port)))

    def reads(self, port: int, wanted: set[str]) -> set[str]:
        """Return the columns of an input that are needed to give the wanted columns."""
        return wanted

    def wants_order(self, ordered: bool) -> bool:
        """Return whether input rows must carry their order, if results have to or not."""
        return ordered

    def facts(self) -> dict[str, Any]:
        """Return what the operator's state depends on, as plain values for the checkpoint."""
        return {}

    def __reduce__(self) -> tuple[Any, ...]:
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        fields["schema"] = dict(self.schema)
        return _restore, (type(self), fields)


def _restore(kind: type[Node], fields: dict[str, Any]) -> Node:
    return kind(**fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvFormat:
    """How CSV files are written.

    Attributes:
        separator: What stands between values.
        null_values: Texts that stand for null, beside the empty one.
        encoding: The encoding, one that Python knows.
        header: Whether the first line has the names of the columns.
        columns: Their names in order, if there is no header.
        quote: What values may be quoted by.
        comment: What lines begin with that are passed over.
        skip_rows: How many lines at the top are passed over.
        decimal_comma: Whether numbers have a comma in place of a point.
    """

    separator: str = ","
    null_values: tuple[str, ...] = ()
    encoding: str = "utf8"
    header: bool = True
    columns: tuple[str, ...] = ()
    quote: str | None = '"'
    comment: str | None = None
    skip_rows: int = 0
    decimal_comma: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """What a source reads: a value that says where its input is.

    What can be done with it, `penstock.sources.registry` finds by its type.
    """

    @property
    def kind(self) -> str:
        """What it is called in plans."""
        return type(self).__name__.lower()

    @property
    def native(self) -> bool:
        """Whether tasks read it themselves, in an order that it has.

        Otherwise the engine brings its rows: where the engine has them, and in no order.
        """
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Files(Reader):
    """A folder that is watched for new files of one format.

    Attributes:
        path: The folder.
        format: The format of its files.
        max_files_per_epoch: How many files one epoch takes at most.
        patience_us: For how long a file that is not complete is tried again.
        csv: How CSV files are written.
        partitions: Columns whose values are in the names of folders, ``year=2024``; if there are
            any, files are looked for in folders at every depth.
    """

    path: str
    format: str
    max_files_per_epoch: int | None = None
    patience_us: int = 0
    csv: CsvFormat = CsvFormat()
    partitions: tuple[tuple[str, pl.DataType], ...] = ()

    @property
    def kind(self) -> str:
        """What it is called in plans: the format."""
        return self.format


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rows(Reader):
    """Rows given in the program, written to the checkpoint when the query starts."""

    rows: pl.DataFrame


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Source(Node):
    """Where rows come from, with their event time and how late they may be.

    Attributes:
        name: What it is called.
        time: The column with the event time, or the text of the expression that gives it.
        delay_us: How far behind the highest time seen a row may come.
        reader: What reads it.
        idle_us: After how long without rows it no longer holds back the watermark.
        moment: The expression that gives the event time, if no column holds it.
        moment_type: Its type.
        late_whole: Whether late rows are kept with all columns, and not just those that are read.
    """

    name: str
    time: str
    delay_us: int
    reader: Reader
    idle_us: int | None = None
    moment: pl.Expr | None = None
    moment_type: pl.DataType | None = None
    late_whole: bool = True

    @property
    def zone(self) -> str | None:
        """The time zone that the event time is shown in; None if it has none and counts as UTC."""
        return zone_of(self.schema.get(self.time) if self.moment is None else self.moment_type)

    @property
    def time_columns(self) -> set[str]:
        """The columns that the event time is read from."""
        return {self.time} if self.moment is None else roots([self.moment])

    @property
    def title(self) -> str:
        """What the operator does, in a few words."""
        time = "" if self.moment is None else f", time = {self.time}"
        return f"source {self.name} ({self.reader.kind}{time})"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Map(Node):
    """Computes columns; with ``keep`` the other columns stay."""

    columns: tuple[tuple[str, pl.Expr], ...]
    keep: bool
    texts: tuple[str, ...] = ()

    def reads(self, port: int, wanted: set[str]) -> set[str]:
        """Return the columns of an input that are needed to give the wanted columns."""
        computed = {name for name, _ in self.columns}
        return (wanted - computed if self.keep else set()) | roots(e for _, e in self.columns)

    @property
    def title(self) -> str:
        """What the operator does, in a few words."""
        named = zip((name for name, _ in self.columns), self.texts, strict=True)
        body = ", ".join(name if name == text else f"{name} = {text}" for name, text in named)
        return f"{'map' if self.keep else 'select'} {body}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Filter(Node):
    """Keeps the rows for which the predicate is true."""

    predicate: pl.Expr
    text: str
    label: str = "filter"

    def reads(self, port: int, wanted: set[str]) -> set[str]:
        """Return the columns of an input that are needed to give the wanted columns."""
        return wanted | roots([self.predicate])

    @property
    def title(self) -> str:
        """What the operator does, in a few words."""
        return f"{self.label} {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Union(Node):
    """All rows of its inputs, which share a schema."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spread(Node):
    """The same rows, spread over the instances of a subquery that begins here."""

    @property
    def begins(self) -> bool:
        """Whether a subquery begins with the operator, however the query is split."""
        return True


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Apply(Node):
    """A user's function over a Polars frame; each row's result depends on that row alone."""

    function: Callable[[pl.DataFrame], pl.DataFrame]
    name: str

    def reads(self, port: int, wanted: set[str]) -> set[str]:
        """Return the columns of an input that are needed to give the wanted columns."""
        return set(self.inputs[0].schema)

    @property
    def title(self) -> str:
        """What the operator does, in a few words."""
        return f"apply {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Explode(Node):
    """One row for each element of a list; a struct's fields become columns."""

    column: str

    def reads(self, port: int, wanted: set[str]) -> set[str]:
        """Return the columns of an input that are needed to give the wanted columns."""
        return (wanted & set(self.inputs[0].schema)) | {self.column}

    @property
    def title(self) -> str:
        """What the operator does, in a few words."""
        return f"explode {self.column}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Keyed(Node):
    """An operator with state per key, which looks at rows in order unless it says otherwise."""

    by: tuple[str, ...]

    @property
    def stateful(self) -> bool:
        """Whether the operator keeps rows or results from one epoch to the next."""
        return True

    def keys(self, port: int) -> tuple[str, ...] | None:
        """Return the columns by which rows of an input are routed."""
        return self.by

    def reads(self, port: int, wanted: set[str]) -> set[str]:
        """Return the columns of an input that are needed: all, since they tell apart what ties."""
        return set(self.inputs[port].schema)

    def wants_order(self, ordered: bool) -> bool:
        """Return whether input rows must carry their order, if results have to or not."""
        return True


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Aggregate(Keyed):
    """Aggregates per group and window."""

    window: Window
    aggregation: Aggregation

    @property
    def note(self) -> str:
        """How the operator works, for plans."""
        kind = "merges partials" if self.combines else "keeps rows"
        if not isinstance(self.window, TimeWindow):
            return kind
        panes = self.window.size_us // self.window.pane_us
        return f"{kind}; {panes} pane{'s' if panes > 1 else ''} a window"

    @property
    def combines(self) -> bool:
        """Whether rows for the operator are combined to fewer before they are shuffled."""
        return self.aggregation.mergeable and not isinstance(self.window, CountWindow)

    @property
    def after_us(self) -> int:
        """How far the watermark of the results is past that of the input, in microseconds."""
        return 1 if isinstance(self.window, TimeWindow) else 0

    @property
    def zone(self) -> str | None:
        """The time zone that the event time is shown in, which is that of the window's end."""
        return zone_of(self.schema["window_end"])

    def reads(self, port: int, wanted: set[str]) -> set[str]:
        """Return the columns of an input that are needed to give the wanted columns."""
        return set(self.by) | self.aggregation.reads

    def wants_order(self, ordered: bool) -> bool:
        """Return whether input rows must carry their order, if results have to or not."""
        return self.aggregation.needs_order or isinstance(self.window, CountWindow)

    def facts(self) -> dict[str, Any]:
        """Return what the operator's state depends on, as plain values for the checkpoint."""
        facts = {
            "by": {key: str(self.schema[key]) for key in self.by},
            "keys": list(self.by),  # buckets depend on their order
            "window": str(self.window),
            "values": self.aggregation.texts,
            "merges": self.aggregation.merges if self.combines else None,
            "said": dict(zip(self.aggregation.names, self.aggregation.said, strict=False)),
        }
        return facts | (self.window.facts(self.zone) if isinstance(self.window, TimeWindow) else {})

    @property
    def title(self) -> str:
        """What the operator does, in a few words."""
        values = ", ".join(self.aggregation.names)
        by = f" by {', '.join(self.by)}" if self.by else ""
        return f"aggregate {values}{by} over {self.window}"


MODES = ("error", "append", "overwrite")
"""What a query does if the place of its sink has epochs of others."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sink(Node):
    """Where results go. An ordered sink keeps rows until their turn in stream order.

    ``kind`` is a key of `penstock.sinks.registry`, which says what is done with rows; what
    ``target`` is depends on it. ``mode`` is one of `MODES`.
    """

    kind: str
    target: Any = None
    ordered: bool = False
    mode: str = "error"

    @property
    def stateful(self) -> bool:
        """Whether the operator keeps rows or results from one epoch to the next."""
        return self.ordered

    @property
    def alone(self) -> bool:
        """Whether the operator has one instance, because it looks at the stream as a whole."""
        return self.ordered

    def reads(self, port: int, wanted: set[str]) -> set[str]:
        """Return the columns of an input that are needed to give the wanted columns."""
        return set(self.schema)

    def wants_order(self, ordered: bool) -> bool:
        """Return whether input rows must carry their order, if results have to or not."""
        return self.ordered or ordered

    def facts(self) -> dict[str, Any]:
        """Return what the operator's state depends on, as plain values for the checkpoint."""
        return {"columns": {key: str(dtype) for key, dtype in self.schema.items()}}

    @property
    def title(self) -> str:
        """What the operator does, in a few words."""
        where = f" {self.target}" if isinstance(self.target, str) else ""
        return f"write {self.kind}{where}{' in order' if self.ordered else ''}"

    def __reduce__(self) -> tuple[Any, ...]:
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        fields["schema"] = dict(self.schema)
        if callable(self.target):  # a function of the user's is called in the driver, never sent
            fields["target"] = None
        return _sink_elsewhere, (fields,)


def _sink_elsewhere(fields: dict[str, Any]) -> Sink:
    return Sink(**fields)


def roots(expressions: Iterable[pl.Expr]) -> set[str]:
    """Return the columns that some expressions read."""
    return {name for expression in expressions for name in expression.meta.root_names()}


def topological(sinks: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return every node that some sinks (or other nodes) need, inputs first, in a stable order."""
    seen: dict[int, Node] = {}

    def visit(node: Node) -> None:
        if id(node) not in seen:
            for child in node.inputs:
                visit(child)
            seen[id(node)] = node

    for sink in sinks:
        visit(sink)
    nodes = list(seen.values())
    return tuple(
        [n for n in nodes if isinstance(n, Source)]
        + [n for n in nodes if not isinstance(n, Source)]
    )
