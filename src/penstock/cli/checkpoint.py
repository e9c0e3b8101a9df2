"""What the commands share that look at a checkpoint from outside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.base.errors import CheckpointError, PenstockError
from penstock.cli.output import fail
from penstock.files.place import Place, place_of


def root_of(checkpoint: str) -> Place:
    """Return Penstock's folder in a checkpoint.

    Raises:
        CheckpointError: There is none.
    """
    root = place_of(checkpoint) / "penstock"
    if not root.list():
        reason = "there is no checkpoint of Penstock here"
        raise CheckpointError(path=str(place_of(checkpoint)), reason=reason)
    return root


@contextmanager
def tell_errors(as_json: bool) -> Iterator[None]:
    """End with ``error:`` and ``hint:`` where Penstock or the file system raises."""
    try:
        yield
    except (PenstockError, OSError) as error:
        fail(str(error), _hint(error), as_json=as_json)


def _hint(error: Exception) -> str | None:
    if not isinstance(error, CheckpointError):
        return None
    if "no checkpoint" in str(error) or "no query has run" in str(error):
        return "give the folder that was given to `start` or to `penstock run --checkpoint`"
    if "retired" in str(error):
        return "leave --epoch out to read the newest, or raise spark.penstock.retainSeconds"
    return "`penstock state verify CHECKPOINT` looks at every file"
