"""Every error that Penstock raises on purpose.

Errors carry their facts as fields, build their text in ``__str__`` and survive pickling, because
they cross from a Spark task to the driver. A user's mistake is also the matching builtin error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.base.problems import Problem, locate
from penstock.base.words import pluralise


class PenstockError(Exception):
    """The root of all errors that Penstock raises on purpose."""

    def __init__(self, **fields: Any) -> None:
        """Keep the facts of the error as fields."""
        super().__init__()
        self.fields = fields
        for name, value in fields.items():
            setattr(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.fields)

    def __str__(self) -> str:
        return "; ".join(f"{name}={value!r}" for name, value in self.fields.items())


def _rebuild(kind: type[PenstockError], fields: dict[str, Any]) -> PenstockError:
    return kind(**fields)


class PenstockWarning(UserWarning):
    """A query that can run and probably does not mean what it says."""


class QueryError(PenstockError, ValueError):
    """A query that cannot run, with every mistake found in it.

    >>> print(QueryError(problems=("map: unknown column 'duratoin'; did you mean 'duration'?",)))
    the query has 1 mistake:
      1. map: unknown column 'duratoin'; did you mean 'duration'?
    """

    problems: tuple[Problem, ...]

    def __init__(self, *, problems: Sequence[str]) -> None:
        """Collect the mistakes in the order in which they were found.

        Those that were not told to be of another line are of the line that runs now.
        """
        super().__init__(problems=locate(problems))

    def __str__(self) -> str:
        count = len(self.problems)
        lines = [f"the query has {pluralise(count, 'mistake')}:"]
        lines += [f"  {i}. {problem.located}" for i, problem in enumerate(self.problems, 1)]
        return "\n".join(lines)


class ConfigError(PenstockError, ValueError):
    """A setting with a value that is not allowed."""

    def __str__(self) -> str:
        f = self.fields
        return f"{f['name']}={f['value']!r} is not allowed; allowed: {f['allowed']}"


class RefusedLimitError(PenstockError):
    """More rows or files were refused than the query tolerates; the epoch was not committed."""

    def __str__(self) -> str:
        f = self.fields
        what = f.get("what", "rows")
        return (
            f"refused {what} exceed the limit: refused={f['refused']}, limit={f['limit']} "
            f"(spark.penstock.maxRefused{what.title()}); epoch {f['epoch']} was not committed; "
            f"first reason: {f['reason']}"
        )


class CheckpointError(PenstockError):
    """A checkpoint that cannot be used for this query, or that is damaged."""

    def __str__(self) -> str:
        f = self.fields
        return f"checkpoint {f['path']!r}: {f['reason']}"


class OutputError(PenstockError):
    """A folder that a query must not, or cannot, write its results to."""

    def __str__(self) -> str:
        f = self.fields
        return f"output folder {f['path']!r}: {f['reason']}"


class FencedError(CheckpointError):
    """Another driver committed the epoch first; this one must stop."""


class FinishedError(CheckpointError):
    """New input for a query that was finished: all its windows are closed for good.

    >>> FinishedError(path="/checkpoint", epoch=3).epoch
    3
    """

    def __str__(self) -> str:
        f = self.fields
        return (
            f"checkpoint {f['path']!r}: the query was finished with epoch {f['epoch']}, so its "
            "input is complete and all its windows are closed; use a new checkpoint for more "
            "input; if more input is to come, start with available_now=True and without "
            "finish=True, which keeps open what is not complete"
        )


class StoppedError(PenstockError):
    """An epoch that was not begun because the query is stopping."""

    def __str__(self) -> str:
        return f"epoch {self.fields['epoch']} was not begun: the query is stopping"


class TaskError(PenstockError):
    """A task of an epoch failed for a reason that is not a bad row."""

    def __str__(self) -> str:
        f = self.fields
        return f"{f['where']}: {f['reason']}"
