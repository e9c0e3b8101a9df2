"""Hold both against each other, and make what differs small enough to read."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import polars as pl

from bench.differ.evaluators import Judge, Penstock
from bench.differ.generator import Statement, Tree, smaller
from bench.differ.meant import CONSTANTS, NULLS
from bench.differ.values import Answer, Failed, first_difference

EQUAL, REFUSED, DIFFERS = "equal", "refused", "differs"
_BATCH = 25
_TRIES = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What became of one statement.

    ``outcome`` is `EQUAL`, `REFUSED` (by both), `DIFFERS`, or the name of a difference that is
    meant.
    """

    statement: Statement
    outcome: str
    row: Hashable = None
    ours: Any = None
    theirs: Any = None


class Comparison:
    """Both sides over the same rows."""

    def __init__(self, rows: pl.DataFrame) -> None:
        """Take the rows."""
        self._penstock = Penstock(rows)
        self._judge = Judge(rows)

    def __enter__(self) -> Comparison:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of the database."""
        self._judge.close()

    def run(self, statements: Iterable[Statement]) -> Iterator[Finding]:
        """Return what becomes of each statement; those that differ are made small first."""
        left = iter(statements)
        while batch := list(islice(left, _BATCH)):
            for statement, answer in zip(batch, self._penstock.ask(batch), strict=True):
                found = self._finding(statement, answer)
                yield self._shrunk(found) if found.outcome == DIFFERS else found

    def _finding(self, statement: Statement, ours: Answer) -> Finding:
        theirs = self._judge.ask(statement)
        odd = first_difference(ours, theirs)
        if odd is None:
            return Finding(statement=statement, outcome=REFUSED if ours.refused else EQUAL)
        fails = ours.refused or isinstance(odd[1], Failed)
        if fails and self._has_failing_constant(statement.tree):
            return Finding(statement=statement, outcome=CONSTANTS)
        for names in _choices(statement.tree.meant):
            odd = first_difference(ours, self._judge.ask(statement, names))
            if odd is None:
                return Finding(statement=statement, outcome=" + ".join(sorted(names)))
        row, mine, other = odd
        if isinstance(mine, Failed) and self._has_failing_part(statement, row):
            return Finding(statement=statement, outcome=NULLS)
        return Finding(statement=statement, outcome=DIFFERS, row=row, ours=mine, theirs=other)

    def _has_failing_constant(self, tree: Tree) -> bool:
        """Return whether a part that has no column fails wherever it is computed."""
        constants = [part for part in tree.walk() if part.parts and not part.columns]
        for part in constants:
            values = self._judge.ask(Statement(tree=part), tree.meant).values or {}
            if any(isinstance(value, Failed) for value in values.values()):
                return True
        return False

    def _has_failing_part(self, statement: Statement, row: Hashable) -> bool:
        """Return whether DuckDB leaves out, beside a NULL, a part that it could not compute."""
        if statement.grouped:
            return False
        names = statement.tree.meant
        for part in statement.tree.computed():
            values = self._judge.ask(Statement(tree=part), names).values or {}
            if isinstance(values.get(row), Failed):
                return True
        return False

    def _shrunk(self, found: Finding) -> Finding:
        """Return the same finding about a statement that is as simple as can be."""
        tries = 0
        going = True
        while going:
            going = False
            for tree in smaller(found.statement.tree):
                tries += 1
                if tries > _TRIES:
                    return found
                tried = self._tried(found.statement, tree)
                if tried is not None:
                    found, going = tried, True
                    break
        return found

    def _tried(self, statement: Statement, tree: Tree) -> Finding | None:
        if statement.grouped and tree.form != statement.tree.form:
            return None
        simpler = replace(statement, tree=tree)
        (answer,) = self._penstock.ask([simpler])
        tried = self._finding(simpler, answer)
        return tried if tried.outcome == DIFFERS else None


def _choices(names: frozenset[str]) -> list[frozenset[str]]:
    """Return each name alone, then all of them."""
    single = [frozenset({name}) for name in sorted(names)]
    return single if len(names) < 2 else [*single, names]
