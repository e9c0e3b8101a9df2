"""Spark's half of a repair: its log taken back to an epoch.

Spark asks again for the epoch after the newest commit, with the offsets that it finds logged for
it. Law: after the steps for epoch K, Spark asks next for epoch K+1, with the input that K+1 had if
that is still known, and lists no file as read that a later epoch has to read again.
"""

from __future__ import annotations

from collections.abc import Iterator, Set

from penstock.files.place import Place
from penstock.state.care.repair_steps import Step
from penstock.state.care.survey import Survey, number_of, numbers
from penstock.state.care.verify_log import checksum_of
from penstock.state.manifests import Manifest
from penstock.state.spark_log import COMPACT, check_log, find_logged_files


class LogRepair:
    """What a repair does to Spark's log."""

    def __init__(self, seen: Survey, bad: Set[str]) -> None:
        """Work on the log of a checkpoint with the given damaged files."""
        self.seen, self.bad, self.spark = seen, bad, seen.spark
        self.present = bool(self.spark.list())

    def supports(self, manifest: Manifest) -> bool:
        """Return whether the log still has what a manifest and Spark's next start depend on."""
        if check_log(self.spark, manifest.spark_log):
            return False
        offsets = [n for n in numbers(self.spark / "offsets") if n <= manifest.epoch]
        if not offsets or offsets[-1] == 0 or self.keeps_next(manifest.epoch):
            return True
        before = self.spark / "offsets" / str(offsets[-1] - 1)  # Spark starts from the last two
        return before.exists() and not self._is_bad(before)

    def keeps_next(self, epoch: int) -> bool:
        """Return whether the input of the epoch after one is known and stays so."""
        place = self.spark / "offsets" / str(epoch + 1)
        if not self.present:
            return True
        if not place.exists():
            following = self.seen.manifests.get(epoch + 1)
            return following is not None and following.final
        if self._is_bad(place):
            return False
        return not any(
            self._is_bad(found)
            for source, last in find_logged_files(place).items()
            for found in self._lists(source)
            if self._find_reached(epoch).get(source, -1) < (number_of(found.name) or 0) <= last
        )

    def _is_bad(self, place: Place) -> bool:
        return self.seen.relative(place) in self.bad

    def _find_reached(self, epoch: int) -> dict[int, int]:
        """Return how far each list of files goes at an epoch."""
        place = self.spark / "offsets" / str(epoch)
        try:
            return find_logged_files(place)
        except (FileNotFoundError, ValueError):
            return {}

    def _lists(self, source: int) -> list[Place]:
        folder = self.spark / "sources" / str(source)
        return [folder / e.name for e in folder.list() if number_of(e.name) is not None]

    def _kept_until(self, epoch: int) -> dict[int, int]:
        """Return the last list of files of each source that stays."""
        kept = self._find_reached(epoch + 1) if self.keeps_next(epoch) else {}
        return self._find_reached(epoch) | kept

    def obstacles(self, epoch: int) -> list[str]:
        """Return why Spark's log cannot be taken back to an epoch."""
        if not self.present or not self._has_to_go_back(epoch):
            return []
        found = []
        for source in self._file_sources():
            last = self._kept_until(epoch).get(source, -1)
            gone = self._find_missing(source, last)
            if gone:
                found.append(
                    f"Spark's log cannot go back to epoch {epoch}: batch {gone[0]} of source "
                    f"{source}'s list of files is gone, for Spark has merged it into a later one; "
                    "restore the checkpoint from a copy, or begin a new one"
                )
        return found

    def _find_missing(self, source: int, last: int) -> list[int]:
        """Return which lists up to one Spark would need and does not find, or finds damaged."""
        names = {place.name for place in self._lists(source) if not self._is_bad(place)}
        compacts = [n for n in range(last + 1) if f"{n}{COMPACT}" in names]
        first = compacts[-1] + 1 if compacts else 0
        return [n for n in range(first, last + 1) if str(n) not in names]

    def _file_sources(self) -> list[int]:
        """Return the sources that keep a list of files; others keep what they like."""
        offsets = self.spark / "offsets"
        found: set[int] = set()
        for number in numbers(offsets):
            place = offsets / str(number)
            if not self._is_bad(place):
                found |= find_logged_files(place).keys()
        return sorted(found)

    def _has_to_go_back(self, epoch: int) -> bool:
        return any(True for _ in self.steps(epoch))

    def steps(self, epoch: int) -> Iterator[Step]:
        """Yield the steps that take the log back to an epoch; none if it is there."""
        inside = f"{self.seen.relative(self.spark)}/"
        sound = not any(path.startswith(inside) for path in self.bad)
        if not self.present or (sound and epoch == self.seen.newest):
            return
        last = epoch + 1 if self.keeps_next(epoch) else epoch
        for name, highest in (("commits", epoch), ("offsets", last)):
            for number in numbers(self.spark / name):
                if number > highest:
                    yield from _aside(self.spark / name / str(number), "the epoch is run again")
        if epoch == self.seen.newest and last > epoch:
            return  # nothing was taken back, and what Spark has listed since is fine
        kept = self._kept_until(epoch)
        for source in self._file_sources():
            for place in self._lists(source):
                if (number_of(place.name) or 0) > kept.get(source, -1):
                    yield from _aside(place, "these files are listed again")


def _aside(place: Place, why: str) -> Iterator[Step]:
    yield Step(action="set aside", path=str(place), why=why)
    beside = checksum_of(place)
    if beside.exists():
        yield Step(action="set aside", path=str(beside), why="its file is set aside")
