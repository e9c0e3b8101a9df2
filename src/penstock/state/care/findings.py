"""What a look at a checkpoint found.

Law: a finding names one file, says what is wrong with it, what that means and whether a repair can
help; what need not worry anybody is a note.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

MEANING: dict[str, tuple[str, str]] = {
    "manifest": (
        "a past epoch can no longer be read",
        "the manifest is set aside; if it is the newest, the query goes back one epoch",
    ),
    "pin": (
        "the query is refused, because it cannot be told whether the state is its own",
        "the pin is set aside and the next start pins its query anew",
    ),
    "segment": (
        "the query stops when it reads this state",
        "its inputs take its place if they are kept; else the query goes back some epochs",
    ),
    "staged": (
        "the newest epoch cannot be published",
        "the query goes back one epoch and makes the file again",
    ),
    "published": (
        "readers of the sink see wrong rows, or miss rows",
        "the newest epoch is made again; of an older one the damaged file is set aside",
    ),
    "late": (
        "late rows cannot be read",
        "the newest epoch is made again; of an older one the damaged file is set aside",
    ),
    "dead": (
        "dead letters cannot be read",
        "the newest epoch is made again; of an older one the damaged file is set aside",
    ),
    "rows": (
        "the rows of the program cannot be read again",
        "the file is set aside and the next start writes it again",
    ),
    "plan": (
        "an epoch that was planned cannot be planned the same way again",
        "the plan is set aside; if its epoch still has to run, it is planned anew",
    ),
    "marker": (
        "it is not known that the epoch was published, so it is published again",
        "the marker is set aside",
    ),
    "offsets": (
        "Spark may give other input to an epoch, so the query refuses to start",
        "the query goes back to an epoch whose input is known",
    ),
    "commits": (
        "Spark cannot start, or runs an epoch once more",
        "the file is set aside; Spark asks for the epoch again, and it is not run twice",
    ),
    "sources": (
        "Spark does not know which files it has read",
        "the query goes back to an epoch that does not need the file, if there is one",
    ),
    "metadata": ("Spark cannot start", "the file is set aside; Spark gives the query a new id"),
    "crc": (
        "Spark refuses to read the file beside it",
        "the checksum is set aside if the file itself is whole",
    ),
    "record": ("what an earlier repair gave up is not known", "the record is set aside"),
}
"""For each kind of file, what damage to it means and what a repair does about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that is wrong with a file.

    Attributes:
        path: The file, as seen from the checkpoint.
        kind: What kind of file it is.
        wrong: What is wrong with it.
        damage: Whether it is damage; else it is a note.
        epoch: The epoch that it belongs to, if any.
        means: What it means.
        repair: How a repair helps; empty if it does not.
    """

    path: str
    kind: str
    wrong: str
    damage: bool = True
    epoch: int | None = None
    means: str = ""
    repair: str = ""


def finding(
    path: str,
    kind: str,
    wrong: str,
    *,
    epoch: int | None = None,
    means: str | None = None,
    repair: str | None = None,
) -> Finding:
    """Return a finding of damage; unless given, what it means follows from its kind."""
    usual = MEANING[kind]
    return Finding(
        path=path,
        kind=kind,
        wrong=wrong,
        epoch=epoch,
        means=usual[0] if means is None else means,
        repair=usual[1] if repair is None else repair,
    )


def note(path: str, kind: str, wrong: str, *, means: str, epoch: int | None = None) -> Finding:
    """Return a note."""
    return Finding(path=path, kind=kind, wrong=wrong, damage=False, epoch=epoch, means=means)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The outcome of looking at every file of a checkpoint."""

    checkpoint: str
    newest: int
    files: int
    bytes: int
    findings: Sequence[Finding]
    notes: Sequence[Finding]
    orphans: int

    @property
    def sound(self) -> bool:
        """Whether nothing is damaged."""
        return not self.findings

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {"ok": self.sound} | asdict(self)
