"""Penstock and DuckDB, asked the same.

Penstock goes its real way: `ps.sql`, the compiler, and the tasks of an epoch, with a sink for each
statement; a row that is missing there is a dead letter. DuckDB gives up a statement at its first
error, so it is then asked row by row.
"""

from __future__ import annotations

import tempfile
from collections.abc import Hashable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

import penstock as ps
from bench.differ.form import KEPT
from bench.differ.generator import Statement, Tree
from bench.differ.table import ZONE
from bench.differ.values import Answer, Failed, plain
from penstock.base.config import Config
from penstock.compiler import compile_query
from penstock.query.nodes import Sink
from penstock.query.stream import Stream
from penstock.testing.runner import LocalRun

_WINDOW = "1 hour"
_BUCKET = f"time_bucket(INTERVAL '{_WINDOW}', moment)"
_CRASHES = (duckdb.FatalException, duckdb.InternalException)
_REFUSALS = (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException)


class Penstock:
    """Evaluates statements by Penstock."""

    def __init__(self, rows: pl.DataFrame) -> None:
        """Take the rows."""
        self._rows = rows
        self._stream = ps.from_rows([], schema=dict(rows.schema), time="moment", name="t")

    def ask(self, statements: Sequence[Statement]) -> list[Answer]:
        """Return what each statement gives; all of them run in one query."""
        built = [self._build(statement) for statement in statements]
        sinks = {i: b for i, b in enumerate(built) if isinstance(b, Sink)}
        found = self._run(sinks, statements)
        return [found[i] if i in found else Answer(refusal=str(b)) for i, b in enumerate(built)]

    def _build(self, statement: Statement) -> Sink | str:
        try:
            made: Stream = ps.sql(_asked(statement), t=self._stream)
            return made.write_memory(f"m{id(statement)}").sinks[0]
        except ps.QueryError as error:
            return "; ".join(error.problems)

    def _run(self, sinks: dict[int, Sink], asked: Sequence[Statement]) -> dict[int, Answer]:
        if not sinks:
            return {}
        try:
            tables = self._tables(tuple(sinks.values()))
        except Exception as error:  # it must not end the test
            if len(sinks) > 1:
                halves = [dict(list(sinks.items())[i::2]) for i in (0, 1)]
                return {**self._run(halves[0], asked), **self._run(halves[1], asked)}
            return dict.fromkeys(sinks, Answer(refusal=f"crash: {type(error).__name__}: {error}"))
        return {i: self._answer(asked[i], tables[sink.target]) for i, sink in sinks.items()}

    def _tables(self, sinks: tuple[Sink, ...]) -> dict[str, pl.DataFrame]:
        with tempfile.TemporaryDirectory(prefix="penstock-differ-") as folder:
            run = LocalRun(compile_query(sinks), Path(folder), Config(fsync=False))
            run.epoch({0: [self._rows]})
            run.finish()
            return {sink.target: run.table(number) for number, sink in run.driver.query.sinks}

    def _answer(self, statement: Statement, table: pl.DataFrame) -> Answer:
        keys = table.select(pl.exclude("v")).rows()
        values = {_row_id(k): v for k, v in zip(keys, _plain_column(table["v"]), strict=True)}
        if not statement.grouped:
            dead = Failed(reason="dead letter")
            values = {(i,): values.get((i,), dead) for i in self._rows["id"].to_list()}
        return Answer(values=values)


def _asked(statement: Statement) -> str:
    value = f"{statement.tree.text} AS v"
    if statement.grouped:
        group = f"GROUP BY k, TUMBLE(moment, '{_WINDOW}')"
        return f"SELECT k, window_start, {value} FROM t {group}"
    return f"SELECT id, {value} FROM t"


def _plain_column(column: pl.Series) -> list[Any]:
    """Return the plain values of a column; times as numbers, since Python's end at year 9999."""
    dtype = column.dtype
    if isinstance(dtype, pl.Datetime):
        numbers = column.dt.cast_time_unit("us").to_physical().to_list()
        return [n if n is None else ("time", n) for n in numbers]
    if dtype == pl.Date():
        return [n if n is None else ("date", n) for n in column.to_physical().to_list()]
    return [plain(value) for value in column.to_list()]


def _row_id(row: Sequence[Any]) -> Hashable:
    return tuple(str(part) if isinstance(part, datetime) else part for part in row)


class Judge:
    """Evaluates statements by DuckDB."""

    def __init__(self, rows: pl.DataFrame) -> None:
        """Take the rows."""
        self._ids = rows["id"].to_list()
        self._given = rows.to_arrow()
        self._base = self._opened()

    def _opened(self) -> duckdb.DuckDBPyConnection:
        base = duckdb.connect()
        base.execute("PRAGMA disable_optimizer")  # it leaves out what could fail
        base.execute("SET threads = 1")
        base.execute(f"SET TimeZone = '{ZONE}'")
        base.register("given", self._given)
        base.execute("CREATE TABLE t AS SELECT * FROM given")
        return base

    def close(self) -> None:
        """Let go of the database."""
        self._base.close()

    def ask(self, statement: Statement, names: frozenset[str] = frozenset()) -> Answer:
        """Return what a statement gives; differences of these names are made up for."""
        text = statement.tree.judged(names)
        try:
            if statement.grouped:
                return Answer(values=self._groups(statement.tree, text, names))
            return Answer(values=self._by_row(text))
        except duckdb.Error as error:
            return Answer(refusal=_first_line(error))

    def _by_row(self, text: str) -> dict[Hashable, Any]:
        try:
            return self._fetch(f"SELECT id, {text} AS v FROM t")
        except _REFUSALS:
            raise
        except duckdb.Error:
            return {key: value for i in self._ids for key, value in self._one(text, i).items()}

    def _one(self, text: str, row: int) -> dict[Hashable, Any]:
        try:
            return self._fetch(f"SELECT id, {text} AS v FROM t WHERE id = {row}")
        except duckdb.Error as error:
            return {(row,): Failed(reason=_first_line(error))}

    def _groups(self, tree: Tree, text: str, names: frozenset[str]) -> dict[Hashable, Any]:
        asked = f"SELECT k, {_BUCKET} AS window_start, {text} AS v FROM t"
        try:
            return self._fetch(f"{asked} GROUP BY k, window_start")
        except _REFUSALS:
            raise
        except duckdb.Error:
            bad = [] if KEPT in names else self._failing(tree, names)
        kept = f"{asked} WHERE id NOT IN ({', '.join(['-1', *bad])})"
        try:
            return self._fetch(f"{kept} GROUP BY k, window_start")
        except duckdb.Error:
            return self._group_by_group(kept)

    def _group_by_group(self, asked: str) -> dict[Hashable, Any]:
        """Return the values of the groups that have one."""
        found: dict[Hashable, Any] = {}
        groups = self._base.execute(f"SELECT DISTINCT k, {_BUCKET} FROM t").fetchall()
        for k, start in groups:
            only = f"{asked} AND k = '{k}' AND {_BUCKET} = TIMESTAMP '{start}'"
            try:
                found |= self._fetch(f"{only} GROUP BY k, window_start")
            except duckdb.Error:  # Penstock refuses such a result
                continue
        return found

    def _failing(self, tree: Tree, names: frozenset[str]) -> list[str]:
        """Return the rows in which an argument of an aggregate fails."""
        found: set[str] = set()
        for part in tree.parts:
            values = self._by_row(part.judged(names))
            found |= {str(i) for i in self._ids if isinstance(values[(i,)], Failed)}
        return sorted(found)

    def _fetch(self, query: str) -> dict[Hashable, Any]:
        try:
            return self._fetched(query)
        except _CRASHES:  # nothing more can be asked of this database
            self._base = self._opened()
            raise

    def _fetched(self, query: str) -> dict[Hashable, Any]:
        kind = str(self._base.execute(query).description[-1][1])
        if kind not in _COUNTED:
            rows = self._base.fetchall()
            return {_row_id(row[:-1]): plain(row[-1]) for row in rows}
        name, counted = _COUNTED[kind]
        rows = self._base.execute(f"SELECT * EXCLUDE v, {counted} FROM ({query})").fetchall()
        return {_row_id(row[:-1]): row[-1] if row[-1] is None else (name, row[-1]) for row in rows}


_COUNTED = {
    "DATE": ("date", "v - DATE '1970-01-01'"),
    "TIMESTAMP": ("time", "epoch_us(v)"),
    "TIMESTAMP WITH TIME ZONE": ("time", "epoch_us(v)"),
}
"""Times as numbers, since Python's end at the year 9999."""


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
