"""What Spark says when it fails, as errors that a user can read.

Spark tells a failure in pages: the Java stack, the Python stack inside it, the same again for each
attempt. Law: an error that reaches a user says in a few lines what happened; the pages are kept as
its cause, as text, so that they can be read after the JVM has gone.
"""

from __future__ import annotations

import re

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from penstock.base.errors import FencedError, TaskError
from penstock.base.problems import is_users, short

_ANOTHER_DRIVER = ("CONCURRENT_STREAM_LOG_UPDATE", "Multiple streaming queries are concurrently")
"""What Spark says when another query writes the same log; two Penstock drivers are two queries."""
_LONGEST = 600
_RAISED = re.compile(r"^(?:[\w.]+\.)?(\w+(?:Error|Exception|Interrupt|Exit|Warning)\b.*)$", re.M)
_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+)', re.M)
_JAVA = re.compile(r"^\s*(at [\w.$]+\(|\.\.\. \d+ more|Caused by:|JVM stacktrace)")


class SparkFailureError(Exception):
    """Everything that Spark said about a failure, as text."""


def clear_error(error: BaseException, checkpoint: str) -> BaseException:
    """Return an error of Spark as one that says what happened; any other as it is.

    Of two drivers on one checkpoint, Spark may notice before Penstock does; both ways it is a
    `FencedError`. A JVM that has died is told by a connection that is gone.

    Args:
        error: The error that ended a query.
        checkpoint: The query's checkpoint.
    """
    told = _text(error)
    if any(words in told for words in _ANOTHER_DRIVER):
        reason = (
            "another driver writes Spark's log of this checkpoint, so two of them run on it; this "
            "one stops and has committed nothing more; stop one of the two for good"
        )
        return FencedError(path=checkpoint, reason=reason)
    if isinstance(error, (ConnectionError, Py4JNetworkError)):
        reason = (
            f"the connection to Spark's JVM is gone, so it has died or was stopped ({told}); "
            "start the query again from its checkpoint, and it goes on where it was"
        )
        return TaskError(where="Spark", reason=reason)
    if not isinstance(error, (PySparkException, Py4JError)):
        return error
    clear = TaskError(where="Spark", reason=in_short(told))
    clear.__cause__ = SparkFailureError(told)
    return clear


def in_short(text: str) -> str:
    """Return what a long text of Spark's says at its heart.

    If Python raised something in a worker, that is it, with the line of the user's code that it
    came from, if any; otherwise Spark's first lines.

    >>> in_short('''Job aborted: Traceback (most recent call last):
    ...   File "query.py", line 7, in f
    ... ZeroDivisionError: division by zero
    ...
    ...     at org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1)''')
    'ZeroDivisionError: division by zero [query.py:7]'
    >>> in_short('''[PATH_NOT_FOUND] Path does not exist: file:/in. SQLSTATE: 42K03
    ...     at org.apache.spark.sql.errors.Errors$.pathNotFound(Errors.scala:1)''')
    '[PATH_NOT_FOUND] Path does not exist: file:/in. SQLSTATE: 42K03'
    """
    if "Traceback (most recent call last)" in text:
        stack = text.partition("Traceback (most recent call last)")[2]
        if raised := _RAISED.search(stack):
            frames = _FRAME.findall(stack[: raised.start()])
            lines = [f" [{short(path)}:{line}]" for path, line in frames if is_users(path)]
            return _cut(raised[1]) + (lines[-1] if lines else "")
    said: list[str] = []
    for line in text.strip().splitlines():
        if _JAVA.match(line) or len(said) == 4:
            break
        said += [line.strip()] if line.strip() else []
    return _cut(" ".join(said) or "it gave no reason")


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # its text is in a JVM that has gone
        return f"{type(error).__name__}, whose text went with Spark's JVM"
