"""Problems: sentences about mistakes in a query, with the line of the user's code that made them.

A query is built by calls, and its mistakes are told together when it is complete. Law: each of them
names the line on which it was made, wherever it is told, if that line is the user's own.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterable

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_OTHERS = tuple({os.path.abspath(path) + os.sep for path in sysconfig.get_paths().values() if path})
"""Libraries, such as the one that runs the commands: not where a user looks for a mistake."""


class Problem(str):
    """A sentence about a mistake; ``where`` is the user's ``file:line``, or empty."""

    where: str

    def __new__(cls, sentence: str, where: str = "") -> Problem:
        """Make a problem; a place that it has already is kept.

        >>> Problem("map: no columns given", "query.py:3").located
        'map: no columns given [query.py:3]'
        """
        made = super().__new__(cls, sentence)
        made.where = getattr(sentence, "where", "") or where
        return made

    @property
    def located(self) -> str:
        """The sentence with its place."""
        return f"{self} [{self.where}]" if self.where else str(self)

    def __reduce__(self) -> tuple[type[Problem], tuple[str, str]]:
        return Problem, (str(self), self.where)


def locate(sentences: Iterable[str]) -> tuple[Problem, ...]:
    """Return sentences as problems of the line of the user's code that is running now."""
    found = tuple(sentences)
    where = user_line() if found else ""
    return tuple(Problem(sentence, where) for sentence in found)


def user_line() -> str:
    """Return the file and line from which Penstock was called, or nothing if that is not a file."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_OURS):
        if frame.f_back is None:
            return ""
        frame = frame.f_back
    path = frame.f_code.co_filename
    if not os.path.isfile(path) or not is_users(path):
        return ""
    return f"{short(path)}:{frame.f_lineno}"


def is_users(path: str) -> bool:
    """Say whether a file is the user's own: neither Penstock's nor a library's.

    >>> is_users("query.py"), is_users(os.__file__), is_users(__file__)
    (True, False, False)
    """
    inside_archive = ".zip/" in path or path.startswith("<")  # as Spark ships itself to workers
    return not inside_archive and not os.path.abspath(path).startswith((_OURS, *_OTHERS))


def short(path: str) -> str:
    """Return a path as seen from the working directory, if it is below it."""
    full, here = os.path.abspath(path), os.getcwd() + os.sep
    return full.removeprefix(here)
