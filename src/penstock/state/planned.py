"""When an epoch was planned, for plans that depend on the time.

Law: a plan that is made again has the time that was written down first.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.base.errors import CheckpointError
from penstock.files.place import Place
from penstock.files.sealed import seal, unseal

FOLDER = "planned"
KIND = "plan"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The time of an epoch's plan, in seconds since 1970."""

    epoch: int
    now: float


def write_planned(root: Place, planned: Planned) -> None:
    """Write down when an epoch is planned.

    Raises:
        FileExistsError: Somebody has done so before.
    """
    _file(root, planned.epoch).write_new(seal(KIND, planned))


def read_planned(root: Place, epoch: int) -> Planned:
    """Return when an epoch was planned.

    Raises:
        FileNotFoundError: Nobody has written it down.
        CheckpointError: The file is damaged, or belongs to another epoch.
    """
    found = unseal(KIND, _file(root, epoch), Planned)
    if found.epoch != epoch:
        reason = f"damaged: it is the plan of epoch {found.epoch}"
        raise CheckpointError(path=str(_file(root, epoch)), reason=reason)
    return found


def _file(root: Place, epoch: int) -> Place:
    return root / FOLDER / f"{epoch:012d}.json"
