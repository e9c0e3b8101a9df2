"""A file of SQL statements: tables to read and to write, views, and what is inserted where.

Law: a script is a query with sinks, as a Python file could define it: each INSERT is a sink,
and they all run in the same epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl
from sqlglot import exp

from penstock.base.errors import QueryError
from penstock.query.stream import Sinks, Stream
from penstock.sinks.registry import KINDS
from penstock.sources.read import read_arrow, read_csv, read_ndjson, read_parquet
from penstock.sql.declarations import Declaration, read_declaration
from penstock.sql.dialect import parse_statements
from penstock.sql.places import Mistakes
from penstock.sql.query import translate
from penstock.sql.scalars import column
from penstock.sql.scope import Relation, unknown_table
from penstock.sql.still import read_still
from penstock.sql.times import time_columns

_READERS: dict[str, Callable[..., Stream]] = {
    "parquet": read_parquet,
    "csv": read_csv,
    "ndjson": read_ndjson,
    "arrow": read_arrow,
}
_SOURCE_OPTIONS = (
    "time",
    "delay",
    "idle",
    "max_files_per_epoch",
    "patience",
    "partitions",
    "late",
)
_CSV_OPTIONS = (
    "separator",
    "null_values",
    "encoding",
    "header",
    "quote",
    "comment",
    "skip_rows",
    "decimal_comma",
)


def load_script(text: str) -> Sinks:
    """Return the query of a script.

    Raises:
        QueryError: Something is wrong or not supported; each mistake has its line and column.

    >>> query = load_script('''
    ...     CREATE TABLE calls (src VARCHAR, ts TIMESTAMP) WITH (path = 'calls', time = 'ts');
    ...     SELECT src, count(*) AS n FROM calls GROUP BY src, TUMBLE(ts, '1 minute');
    ... ''')
    >>> [sink.title for sink in query.sinks]
    ['write console']
    """
    found, statements = parse_statements(text)
    mistakes = Mistakes(text=found)
    script = _Script(mistakes)
    for statement in statements:
        script.run(statement)
    if not mistakes and not script.sinks:
        mistakes.add("the script writes nothing; end it with INSERT INTO or SELECT", 0)
    if mistakes:
        raise QueryError(problems=mistakes.problems)
    return script.sinks[0].also(*script.sinks[1:])


class _Script:
    """The tables and sinks of the statements so far."""

    def __init__(self, mistakes: Mistakes) -> None:
        self.mistakes = mistakes
        self.tables: dict[str, Relation | pl.DataFrame | None] = {}
        self.targets: dict[str, Declaration] = {}
        self.written: set[str] = set()
        self.sinks: list[Sinks] = []

    def run(self, statement: exp.Expr) -> None:
        if isinstance(statement, exp.Create) and statement.kind == "TABLE":
            self._create_table(statement)
        elif isinstance(statement, exp.Create) and statement.kind == "VIEW":
            self._create_view(statement)
        elif isinstance(statement, exp.Insert):
            self._insert(statement)
        elif isinstance(statement, exp.Query):
            self._read_still(statement)
            self._write(translate(statement, self.tables, self.mistakes), Declaration.console())
        else:
            name = statement.this if isinstance(statement, exp.Command) else ""
            word = str(name or type(statement).__name__).upper()
            self.mistakes.refuse(word, statement, "write CREATE, INSERT INTO or SELECT")

    def _new(self, name: str, node: exp.Expr) -> None:
        if name in self.tables or name in self.targets:
            self.mistakes.add(f"there are two tables called {name!r}", node)

    def _create_table(self, statement: exp.Create) -> None:
        declared = read_declaration(statement, self.mistakes)
        self._new(declared.name, statement.this)
        if "time" in declared.options or not (declared.is_sink or declared.is_still):
            self.tables[declared.name] = self._source(declared, statement)
        else:
            self.targets[declared.name] = declared

    def _read_still(self, query: exp.Expr) -> None:
        """Read the tables without a time that a query names: they stand still."""
        for node in query.find_all(exp.Table):
            name = node.name
            if name not in self.targets or name in self.tables:
                continue
            if name in self.written:
                hint = "write what goes there as a view, and read that"
                self.mistakes.add(f"table {name!r} is written, so it can't be read; {hint}", node)
                self.tables[name] = None
            else:
                self.tables[name] = read_still(self.targets[name], node, self.mistakes)

    def _source(self, declared: Declaration, node: exp.Create) -> Relation | None:
        allowed = (*_SOURCE_OPTIONS, *(_CSV_OPTIONS if declared.format == "csv" else ()))
        options = {n: declared.options[n] for n in allowed if n in declared.options}
        declared.refuse_options({"format", "path", *allowed}, node.this, self.mistakes)
        reader = _READERS.get(declared.format)
        if reader is None:
            known = ", ".join(_READERS)
            self.mistakes.add(f"no format {declared.format!r}; formats: {known}", node.this)
            return None
        if declared.columns is None or not {"path", "time"} <= set(declared.options):
            missing = [n for n in ("path", "time") if n not in declared.options]
            for name in missing:
                self.mistakes.add(f"table {declared.name!r} needs WITH ({name} = '…')", node.this)
            return None
        return self._read(reader, declared, options, node)

    def _read(
        self,
        reader: Callable[..., Stream],
        declared: Declaration,
        options: Mapping[str, Any],
        node: exp.Create,
    ) -> Relation | None:
        columns = dict(declared.columns or {})
        named = options.get("partitions")
        if isinstance(named, list):  # their types are declared with the other columns
            options = {**options, "partitions": {n: columns.pop(n) for n in named if n in columns}}
        try:
            stream = reader(
                declared.options["path"],
                schema=columns or None,
                name=declared.name,
                **options,
            )
        except (QueryError, ValueError) as error:
            found = error.problems if isinstance(error, QueryError) else (str(error),)
        else:
            found = stream._problems
            if not found:
                return Relation(stream=stream, times=time_columns(stream._node))
        for problem in found:
            self.mistakes.add(problem, node.this)
        return None

    def _create_view(self, statement: exp.Create) -> None:
        view = statement.this
        for name, value in statement.args.items():
            if value and name not in ("this", "kind", "expression"):
                self.mistakes.refuse(f"{name.upper()} in CREATE VIEW", statement)
        if isinstance(view, exp.Schema):
            self.mistakes.refuse("a list of columns in CREATE VIEW", view, "name them with AS")
            view = view.this
        self._new(view.name, view)
        self._read_still(statement.expression)
        self.tables[view.name] = translate(
            statement.expression, self.tables, self.mistakes, outermost=False
        )

    def _insert(self, statement: exp.Insert) -> None:
        target = statement.this
        if isinstance(target, exp.Schema):
            self.mistakes.refuse("a list of columns in INSERT", target, "name them with AS")
            target = target.this
        for name in ("overwrite", "conflict", "returning", "where", "by_name"):
            if statement.args.get(name):
                self.mistakes.refuse(f"{name.upper()} in INSERT", statement)
        made = self._inserted(statement)
        if target is None:
            self.mistakes.add("INSERT needs INTO and a table", statement)
        elif target.name in self.tables:
            self.mistakes.add(f"{target.name!r} is read; INSERT needs a table without time", target)
        elif target.name in self.targets and not self.targets[target.name].is_sink:
            form = self.targets[target.name].format
            known = ", ".join(key for key, kind in KINDS.items() if kind.table_options)
            self.mistakes.add(
                f"format {form!r} can be read and not written; formats: {known}", target
            )
        elif target.name in self.targets:
            self.written.add(target.name)
            self._write(made, self.targets[target.name], statement)
        else:
            self.mistakes.add(unknown_table(target.name, list(self.targets)), target)

    def _inserted(self, statement: exp.Insert) -> Relation | None:
        source, with_ = statement.args.get("expression"), statement.args.get("with_")
        if source is None:
            self.mistakes.refuse("INSERT without SELECT", statement)
            return None
        if with_ is not None:
            source.set("with_", with_)
        self._read_still(source)
        return translate(source, self.tables, self.mistakes)

    def _write(
        self, made: Relation | None, target: Declaration, node: exp.Expr | None = None
    ) -> None:
        if made is None or self.mistakes:
            return
        stream = made.stream
        if target.columns and node is not None:
            stream = self._fit(stream, target, node)
        ordered = bool(target.options.get("ordered", False))
        assert target.sink is not None  # a table that cannot be written is refused
        options = target.sink.read(target.options)
        self.sinks.append(stream.write_to(target.format, ordered=ordered, **options))

    def _fit(self, stream: Stream, target: Declaration, node: exp.Expr) -> Stream:
        """Return a stream with the declared names of a table, by position."""
        wanted = dict(target.columns or {})
        if list(wanted.values()) != list(stream.schema.values()):
            found = ", ".join(f"{n} {t}" for n, t in stream.schema.items())
            asked = ", ".join(f"{n} {t}" for n, t in wanted.items())
            self.mistakes.add(
                f"table {target.name!r} has ({asked}); the SELECT gives ({found})", node
            )
        elif list(wanted) != list(stream.schema):
            names = dict(zip(wanted, stream.schema, strict=True))
            return stream.select(**{new: column(old).sql() for new, old in names.items()})
        return stream
