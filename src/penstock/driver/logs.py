"""What a driver writes to the log of its process, for those who look for what happened.

The log is that of Python's `logging`, under ``penstock``. Law: nothing depends on it, and an epoch
writes a handful of lines, however many rows or files it has.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from penstock.control.records import DecisionRecord
from penstock.plan.changes import Reconfiguration
from penstock.plan.compiled import CompiledQuery
from penstock.plan.files import UnreadFile
from penstock.state.manifests import Manifest

_LOG = logging.getLogger(__name__)
_MOST_FILES = 5
"""So many files of an epoch are named, and the others counted."""


def log_start(query: CompiledQuery, checkpoint: str, last: Manifest | None) -> None:
    """Log that a query begins, or goes on, and how large it is."""
    sizes = ", ".join(f"{query.subquery_name(s.id)}: {s.instances}" for s in query.subqueries)
    how = "begins" if last is None else f"goes on after epoch {last.epoch}"
    _LOG.info("checkpoint %s: the query %s; instances: %s", checkpoint, how, sizes)


def log_epoch(
    before: Manifest | None, manifest: Manifest, counts: Mapping[str, int], seconds: float
) -> None:
    """Log that an epoch was committed, and what was odd about it."""
    _LOG.debug(
        "epoch %d is committed and published: rows %s; %.3f s",
        manifest.epoch,
        ", ".join(f"{name} {count}" for name, count in counts.items()),
        seconds,
    )
    for record in manifest.reconfigured:
        _LOG.info("%s", record.sentence)
    if counts.get("refused"):
        text = "epoch %d: %d rows were refused; the dead letters say why"
        _LOG.warning(text, manifest.epoch, counts["refused"])
    last = before or Manifest(epoch=-1)
    waited, refused = _names(last.waiting_files), _names(last.refused_files)
    _log_files(logging.INFO, "waits to be tried again", manifest.waiting_files, waited)
    _log_files(logging.WARNING, "is refused", manifest.refused_files, refused)


def _names(files: Iterable[UnreadFile]) -> set[tuple[int, str]]:
    return {(file.source, file.path) for file in files}


def _log_files(
    level: int, what: str, files: Iterable[UnreadFile], known: set[tuple[int, str]]
) -> None:
    """Log the files that were not told of before."""
    new = [file for file in files if (file.source, file.path) not in known]
    for file in new[:_MOST_FILES]:
        _LOG.log(level, "file %s of source %d %s: %s", file.path, file.source, what, file.reason)
    if len(new) > _MOST_FILES:
        more = "and %d more files of the same epoch; `penstock retry` lists them"
        _LOG.log(level, more, len(new) - _MOST_FILES)


def log_replay(epoch: int) -> None:
    """Log that Spark asks for an epoch again that was committed."""
    _LOG.info("epoch %d was committed before and is not run again", epoch)


def log_late_publication(epoch: int) -> None:
    """Log that a driver publishes what the one before it has left."""
    _LOG.warning("epoch %d is committed but not published; it is published now", epoch)


def log_decision(record: DecisionRecord) -> None:
    """Log what a policy decided, and what the guard refused."""
    for reason in record.proposed.reasons:
        _LOG.debug("%s after epoch %d: %s", record.rules.policy, record.epoch, reason)
    for refusal in record.refused:
        _LOG.debug("refused after epoch %d: %s", record.epoch, refusal)


def log_refusals(refused: Iterable[Reconfiguration]) -> None:
    """Log the requests of users that were refused."""
    for record in refused:
        _LOG.warning("%s", record.sentence)
