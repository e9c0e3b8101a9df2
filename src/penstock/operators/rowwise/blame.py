"""Who is to blame when a step fails: a row, or Penstock itself.

A row that cannot be computed is refused and the query goes on; a defect of Penstock's must end it,
or it would turn good rows into dead letters. Law: rows are refused only for an error that a value
can cause, or that came out of code or data which is not Penstock's (`foreign`), and only if the
step works without any rows; every other error ends the query and no row is refused for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, NoReturn, TypeVar

import polars as pl
from polars import exceptions as raised

from penstock.base.errors import PenstockError, TaskError
from penstock.query.expressions import first_line
from penstock.query.failing import told_by
from penstock.query.trees import to_tree

Step = Callable[[pl.DataFrame], pl.DataFrame]
Raised = TypeVar("Raised", bound=BaseException)
FAILURES = (Exception, raised.PanicException)
"""What a step may raise; Polars panics over times that are too far away."""
_BY_VALUES = (
    raised.ComputeError,
    raised.InvalidOperationError,
    raised.OutOfBoundsError,
    raised.ShapeError,  # lists of different lengths in one row
    raised.PanicException,
    ArithmeticError,
    ValueError,
)
"""What a value can cause in expressions and in Penstock's own functions over values."""
_SPEAKS_FOR_ITSELF = (PenstockError, MemoryError, OSError)
"""Errors that are no row's fault, and no defect either."""
_MARK = "_raised_by_others"
_ENGINE = "penstock.operators."


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Rows that an operator could not compute, as they came to it."""

    operator: str
    reason: str
    row: pl.DataFrame


def refuse_failing(
    step: Step, frame: pl.DataFrame, operator: str, limit: int, definition: Any = None
) -> tuple[list[pl.DataFrame], list[Refusal]]:
    """Run a step over a frame; where it raises, find the rows to blame by halving.

    Args:
        step: A function that treats each row on its own.
        frame: The rows.
        operator: What to call the step in the reasons.
        limit: How many refusals to find at most before giving up the search.
        definition: The operator or the expressions that the step computes; Python functions in
            them are the user's and may raise anything.

    Raises:
        TaskError: No row is to blame.

    >>> def strict(f): return f.select(pl.col("x").cast(pl.Int64))
    >>> good, bad = refuse_failing(strict, pl.DataFrame({"x": ["1", "z", "3"]}), "map", 10)
    >>> pl.concat(good)["x"].to_list(), bad[0].row["x"].to_list()
    ([1, 3], ['z'])
    """
    good: list[pl.DataFrame] = []
    bad: list[Refusal] = []
    pending = [frame]
    while pending and len(bad) <= limit:
        part = pending.pop()
        try:
            good.append(step(part))
        except FAILURES as error:
            if not may_be_a_rows(error, definition):
                end_query(error, operator)
            if not part.height:
                raise
            if part is frame:
                _try_without_rows(step, frame, operator)
            if part.height > 1:
                half = part.height // 2
                pending += [part[half:], part[:half]]
            else:
                bad.append(Refusal(operator=operator, reason=reason_of(error), row=part))
    return good, bad


def _try_without_rows(step: Step, frame: pl.DataFrame, operator: str) -> None:
    """Run a step that has failed without its rows; if it fails again, they are not to blame."""
    try:
        step(frame.clear())
    except FAILURES as error:
        if not is_foreign(error):  # a user's function may not know what to do without rows
            end_query(error, operator)


def may_be_a_rows(error: BaseException, definition: Any = None) -> bool:
    """Return whether a row can be to blame for an error.

    Args:
        error: What a step has raised.
        definition: The operator or the expressions that the step computes.

    >>> may_be_a_rows(ZeroDivisionError()), may_be_a_rows(KeyError("__pane"))
    (True, False)
    >>> may_be_a_rows(KeyError("mine"), pl.col("x").map_elements(len, return_dtype=pl.Int64))
    True
    """
    if is_foreign(error):
        return True
    if isinstance(error, PenstockError):
        return False
    return isinstance(error, _BY_VALUES) or calls_python(definition)


def calls_python(definition: Any) -> bool:
    """Return whether an operator, or an expression, calls a Python function of the user's."""
    if isinstance(definition, pl.Expr):
        try:
            to_tree(definition)
        except raised.PolarsError:  # a Python function has no JSON form
            return True
        return False
    if is_dataclass(definition) and not isinstance(definition, type):
        names = [f.name for f in fields(definition) if f.name not in ("inputs", "schema")]
        return any(calls_python(getattr(definition, name)) for name in names)
    if isinstance(definition, Mapping):
        return any(calls_python(value) for value in definition.values())
    return isinstance(definition, tuple | list) and any(map(calls_python, definition))


def reason_of(error: BaseException) -> str:
    """Return why a row is refused: what `fail_where` told, or the error's kind and first line."""
    return told_by(error) or f"{type(error).__name__}: {first_line(error)}"


def end_query(error: BaseException, operator: str) -> NoReturn:
    """Raise what ends the query in place of an error that no row is to blame for.

    Args:
        error: The error; one that speaks for itself is raised as it is.
        operator: What was being computed.
    """
    if isinstance(error, _SPEAKS_FOR_ITSELF):
        raise error
    reason = (
        f"{reason_of(error)}{_line_of(error)}; no row is to blame: this is a defect of Penstock's, "
        "so please report it; the epoch was not committed and no row was refused for it"
    )
    raise TaskError(where=operator, reason=reason) from error


def _line_of(error: BaseException) -> str:
    """Return the last line of Penstock's code that an error passed through, in brackets."""
    ours = [(name, line) for name, line in _modules_of(error) if name.startswith("penstock.")]
    return f" [{ours[-1][0]}:{ours[-1][1]}]" if ours else ""


def _modules_of(error: BaseException) -> list[tuple[str, int]]:
    """Return the modules and lines that an error passed through, from where it was caught."""
    found, trace = [], error.__traceback__
    while trace is not None:
        found.append((str(trace.tb_frame.f_globals.get("__name__", "")), trace.tb_lineno))
        trace = trace.tb_next
    return found


def is_raised_in_engine(error: BaseException) -> bool:
    """Return whether an error comes from a function of the engine's that nobody else called.

    Where it was caught does not count: what is called from there may be the user's, without a line
    of its own.
    """
    called = _modules_of(error)[1:]
    return bool(called) and all(name.startswith(_ENGINE) for name, _ in called)


def mark_foreign(error: Raised) -> Raised:
    """Return an error that is marked as not Penstock's fault."""
    setattr(error, _MARK, True)
    return error


def is_foreign(error: BaseException) -> bool:
    """Return whether an error is marked as not Penstock's fault."""
    return getattr(error, _MARK, False) is True


@contextmanager
def foreign() -> Iterator[None]:
    """Mark whatever is raised inside as the fault of code or data that is not Penstock's.

    >>> try:
    ...     with foreign():
    ...         {}["mine"]
    ... except KeyError as error:
    ...     is_foreign(error)
    True
    """
    try:
        yield
    except FAILURES as error:
        mark_foreign(error)
        raise
