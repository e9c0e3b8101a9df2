"""The steps of a repair, and how they are carried out.

Law: a repair deletes nothing. What it takes away is moved to a quarantine folder in the checkpoint,
under the path that it had; a record there says what was done and what is given up for good.
"""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from penstock.base.errors import CheckpointError
from penstock.files.place import Place, place_of
from penstock.files.sealed import seal
from penstock.state.care.survey import QUARANTINE, RECORD, walk
from penstock.state.manifests import ManifestLog

_LOG = logging.getLogger(__name__)

FRESH_SECONDS, WATCH_SECONDS, POLL_SECONDS = 10.0, 3.0, 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing to do: set a file or folder aside, or write one.

    Attributes:
        action: ``set aside`` or ``write``.
        path: The file or folder.
        why: The reason.
        data: What to write.
    """

    action: str
    path: str
    why: str
    data: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairPlan:
    """What a repair will do.

    Attributes:
        checkpoint: The checkpoint.
        newest: The newest epoch that has a manifest now.
        back_to: The epoch that will be the newest.
        steps: What to do, in this order.
        notes: What the user has to know.
        impossible: What cannot be repaired, and why; then nothing is done.
        accepted: Files whose absence is given up for good.
    """

    checkpoint: str
    newest: int
    back_to: int
    steps: Sequence[Step] = ()
    notes: Sequence[str] = ()
    impossible: Sequence[str] = ()
    accepted: Sequence[str] = ()

    @property
    def needed(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.steps or self.accepted or self.impossible)

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        steps = [{"action": s.action, "path": s.path, "why": s.why} for s in self.steps]
        return {
            "checkpoint": self.checkpoint,
            "newest": self.newest,
            "back_to": self.back_to,
            "steps": steps,
            "notes": list(self.notes),
            "impossible": list(self.impossible),
            "accepted": list(self.accepted),
        }


def carry_out(plan: RepairPlan, *, clock: Callable[[], float] = time.time) -> Place:
    """Carry a plan out; return the quarantine folder.

    Raises:
        CheckpointError: The plan is impossible, or the checkpoint has changed since it was made.
    """
    root = place_of(plan.checkpoint) / "penstock"
    if plan.impossible:
        raise CheckpointError(path=plan.checkpoint, reason="; ".join(plan.impossible))
    if max(ManifestLog(root).epochs(), default=-1) != plan.newest:
        reason = "it has changed since the repair was planned; is the query running?"
        raise CheckpointError(path=plan.checkpoint, reason=reason)
    folder = _quarantine(root, clock())
    for step in plan.steps:
        _LOG.info("repair: %s %s: %s", step.action, step.path, step.why)
        place = place_of(step.path)
        if step.action == "write":
            place.write_new(step.data)
        elif place.exists():
            _set_aside(place, folder / _inside(plan.checkpoint, step.path))
    record = plan.as_dict() | {"newest": plan.back_to, "at": clock()}
    (folder / f"{RECORD}.json").write_new(seal(RECORD, record))
    _LOG.info("repair: what was set aside is in %s", folder)
    return folder


def _quarantine(root: Place, now: float) -> Place:
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    number, folder = 0, root / QUARANTINE / stamp
    while folder.exists():
        number += 1
        folder = root / QUARANTINE / f"{stamp}-{number}"
    return folder


def _inside(checkpoint: str, path: str) -> str:
    """Return where in the quarantine a file goes.

    >>> _inside("/c", "/c/penstock/pinned/0.json"), _inside("/c", "/out/epoch=3")
    ('penstock/pinned/0.json', 'outside/out/epoch=3')
    """
    home = str(place_of(checkpoint))
    if path.startswith(f"{home}/"):
        return path.removeprefix(f"{home}/")
    return f"outside/{path.replace('://', '/').lstrip('/')}"


def _set_aside(place: Place, to: Place) -> None:
    if place.files is to.files:
        try:
            place.files.move(str(place), str(to))
            return
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
    files = [found for found, _ in walk(place)] or [place]
    for found in files:  # on another disk: copied, and removed once the copy is safe
        Place(to.files, str(to) + str(found).removeprefix(str(place))).write_new(found.read())
    for found in files:
        found.delete()
    if place.exists():
        place.delete()


def seems_to_run(
    checkpoint: str,
    *,
    clock: Callable[[], float] = time.time,
    wait: Callable[[float], None] = time.sleep,
) -> bool:
    """Return whether the query of a checkpoint seems to run.

    If the newest manifest is a few seconds old, it is watched for a few seconds; if a newer one
    comes, the query runs. A query that waits for input, or that starts an epoch more seldom, is not
    noticed: nothing in a checkpoint says that a driver is alive.
    """
    log = ManifestLog(place_of(checkpoint) / "penstock")
    before = log.epochs()
    try:
        newest = log.read(before[-1]) if before else None
    except CheckpointError:
        newest = None
    if newest is not None and clock() - newest.committed_at > FRESH_SECONDS:
        return False
    until = clock() + WATCH_SECONDS if before else 0.0
    while clock() < until:
        wait(POLL_SECONDS)
        if log.epochs() != before:
            return True
    return False
