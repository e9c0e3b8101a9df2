"""Whose a sink's folder is.

Beside a sink's folder, hidden, is a short list of claims; the newest one says which query may write
there, and from which number on the folder's epochs are its own. It is beside the folder and not in
it, because Polars reads every file below a folder. Laws: a folder has one owner at a time; one with
epochs of others is taken only by a query that says so; no two owners share a number.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, replace

from penstock.base.errors import CheckpointError, OutputError
from penstock.files.place import Place, place_of
from penstock.files.sealed import seal, unseal
from penstock.plan.epoch import Output
from penstock.sinks.epochs import epochs_in

KIND = "claim"
_NAME = re.compile(r"\d{12}\.json")
_KEPT = 8
_GONE = ".gone-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Says that a folder belongs to a query.

    Attributes:
        owner: The query's own word, which its checkpoint keeps.
        checkpoint: Where that was when the claim was made.
        first: The number that its epoch 0 has, or would have.
        begin: The first number that is its own.
        clears: Whether epochs below that are still to be removed.
    """

    owner: str
    checkpoint: str
    first: int = 0
    begin: int = 0
    clears: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimant:
    """A query that wants to write into a folder.

    Attributes:
        owner: Its own word.
        checkpoint: Its checkpoint.
        next_epoch: The first epoch that it may write there.
        mode: What it does with epochs of others, one of `penstock.query.nodes.MODES`.
        known: What its newest manifest says of the folder, if anything.
        waits: Whether an epoch waits to be published there.
    """

    owner: str
    checkpoint: str
    next_epoch: int = 0
    mode: str = "error"
    known: Output | None = None
    waits: bool = False


def claims_folder(target: Place) -> Place:
    """Return where the claims on a folder are.

    >>> str(claims_folder(place_of("/out/heavy")))
    '/out/.heavy.owners'
    """
    parent, name = posixpath.split(target.path)
    return Place(target.files, f"{parent}/.{name}.owners")


def newest_claim(target: Place) -> Claim | None:
    """Return the claim that counts; None if nobody has claimed the folder.

    Raises:
        CheckpointError: It is damaged.
    """
    for _ in range(3):  # while we look, others may claim and remove old ones
        names = _names(target)
        if not names:
            return None
        try:
            return unseal(KIND, claims_folder(target) / names[-1], Claim)
        except FileNotFoundError:
            continue
    return None


def end_of(target: Place, owner: str, begin: int) -> int | None:
    """Return where the numbers of a claim end: where the first claim after it begins.

    Args:
        target: The folder.
        owner: Whose the claim is.
        begin: Where its numbers begin.

    Returns:
        The first number that is no longer its own; None if no other claim has come.
    """
    found: list[int] = []
    for name in _names(target):
        try:
            claim = unseal(KIND, claims_folder(target) / name, Claim)
        except (FileNotFoundError, CheckpointError):
            continue
        ours = claim.owner == owner and claim.begin == begin
        found = [] if ours else [*found, claim.begin]
    return min(found, default=None)


def claim_folder(target: Place, who: Claimant) -> Claim:
    """Make a folder a query's own, or find that it is.

    Raises:
        OutputError: It belongs to another query, or has epochs that this query did not write.
    """
    while True:
        newest = newest_claim(target)
        if newest is None or newest.owner != who.owner:
            made = _make_wanted(target, who, newest)
            if not _write(target, made):
                continue  # another claimed it meanwhile; look again
            newest = made
        if newest.clears:
            _clear(target, newest)
            if not _write(target, replace(newest, clears=False)):
                continue
        return replace(newest, clears=False)


def _make_wanted(target: Place, who: Claimant, newest: Claim | None) -> Claim:
    there = list(epochs_in(target))
    if newest is None and who.known is not None:  # the claim was lost, the checkpoint knows better
        first, begin = who.known.first, who.known.first + who.known.since
        return Claim(owner=who.owner, checkpoint=who.checkpoint, first=first, begin=begin)
    if newest is not None and who.waits:
        raise OutputError(path=str(target), reason=_explain_taken(newest))
    if who.mode == "error" and (there or not _is_free(newest, who)):
        raise OutputError(path=str(target), reason=_refusal(there, newest))
    after = there[-1] + 1 if there else 0
    if newest is not None and there:
        after += 1  # the owner before may be about to publish one more
    first = max(0, after - who.next_epoch)
    return Claim(
        owner=who.owner,
        checkpoint=who.checkpoint,
        first=first,
        begin=first + who.next_epoch,
        clears=who.mode == "overwrite",
    )


def _is_free(newest: Claim | None, who: Claimant) -> bool:
    """Return whether nobody can come and write into a folder without epochs."""
    if newest is None or newest.checkpoint == who.checkpoint:  # where the old checkpoint was
        return True
    return not (place_of(newest.checkpoint) / "penstock" / "pinned").list()


def _refusal(there: list[int], newest: Claim | None) -> str:
    whose = "another query" if newest is None else f"the query of checkpoint {newest.checkpoint!r}"
    what = (
        f"it has epochs ({there[0]} to {there[-1]}) of {whose}, not of this checkpoint"
        if there
        else f"it belongs to {whose}"
    )
    return (
        f"{what}; give another folder, or say write_parquet(..., mode='append') to write after "
        "them, or mode='overwrite' to remove them"
    )


def check_owner(target: Place, owner: str, number: int) -> None:
    """Check that an epoch of a query may appear in a folder under a number.

    Raises:
        OutputError: Another query has taken the folder.
    """
    newest = newest_claim(target)
    if newest is not None and (newest.owner != owner or number < newest.begin):
        raise OutputError(path=str(target), reason=_explain_taken(newest))


def _explain_taken(newest: Claim) -> str:
    return (
        f"the query of checkpoint {newest.checkpoint!r} has taken it over; an epoch of this query "
        "waits in a staging folder beside it and can no longer be published; begin a new "
        "checkpoint, with another folder"
    )


def _write(target: Place, claim: Claim) -> bool:
    """Add a claim; return whether it is the newest."""
    folder, names = claims_folder(target), _names(target)
    number = int(names[-1][:12]) + 1 if names else 0
    place = folder / f"{number:012d}.json"
    try:
        place.write_new(seal(KIND, claim))
    except FileExistsError:
        return False
    if _names(target)[-1:] != [place.name]:  # others went on for so long that it was forgotten
        place.delete()
        return False
    for old in names[: 1 - _KEPT]:
        (folder / old).delete()
    return True


def _names(target: Place) -> list[str]:
    return [e.name for e in claims_folder(target).list() if _NAME.fullmatch(e.name)]


def _clear(target: Place, claim: Claim) -> None:
    """Remove the epochs of others, each in one step, and what a crash has left."""
    aside = claims_folder(target)
    for number, name in epochs_in(target).items():
        if number < claim.begin:
            folder = target / name
            if target.files.moves_folders:
                hidden = aside / f"{_GONE}{name}-{target.files.unique()}"
                target.files.move(str(folder), str(hidden))
            else:
                _remove(folder)
    for entry in aside.list():
        if entry.name.startswith(_GONE):
            _remove(aside / entry.name)


def _remove(folder: Place) -> None:
    for entry in folder.list():
        if entry.folder:
            _remove(folder / entry.name)
        else:
            (folder / entry.name).delete()
    if folder.files.moves_folders:
        folder.delete()
