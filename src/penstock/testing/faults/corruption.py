"""Corruption: one file of a checkpoint that is not what was written.

Law: a corruption is a value of a seed and of the checkpoint, and changes exactly the files that it
names. It replaces files and never writes into one, so links to them stay as they were.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.sinks.epochs import published_epoch
from penstock.state.care.survey import Survey, survey, walk
from penstock.state.published import is_published

DAMAGES = ("flip", "scramble", "truncate", "extend", "empty", "swap", "stale", "forge", "delete")
"""What can happen to a file.

flip: one bit; scramble: several bytes; swap: two files of a kind change places; stale: an older
file of the kind stands under the name of a newer one; forge: an older file stands under a name that
was not used yet.
"""
NUMBERED = ("manifest", "pin", "plan", "marker", "offsets", "commits", "sources", "orphan")
"""The kinds whose files are told apart by a number, so that there is a next name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Corruption:
    """What is done to which file; ``other`` is the file whose bytes take part."""

    kind: str
    damage: str
    path: Path
    other: Path | None = None
    seed: int = 0

    def apply(self) -> None:
        """Do it."""
        rng = random.Random(self.seed)
        if self.damage == "delete":
            self.path.unlink()
        elif self.damage == "swap":
            assert self.other is not None
            mine, theirs = self.path.read_bytes(), self.other.read_bytes()
            _replace(self.path, theirs)
            _replace(self.other, mine)
        elif self.damage in ("stale", "forge"):
            assert self.other is not None
            _replace(self.path, self.other.read_bytes())
        else:
            _replace(self.path, _CHANGES[self.damage](rng, self.path.read_bytes()))

    @property
    def paths(self) -> list[Path]:
        """The files that are not what they were."""
        return [self.path, *([self.other] if self.damage == "swap" and self.other else [])]


def _replace(path: Path, data: bytes) -> None:
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def _flip(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]


def _scramble(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randrange(2, 17)):
        at = rng.randrange(len(data))
        changed[at] ^= rng.randrange(1, 256)
    return bytes(changed) if changed != data else _flip(rng, data)


def _truncate(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data))]


def _extend(rng: random.Random, data: bytes) -> bytes:
    return data + rng.choice((rng.randbytes(rng.randrange(1, 64)), b"\0", b"\n", data))


def _empty(rng: random.Random, data: bytes) -> bytes:
    return b""


_CHANGES: Mapping[str, Callable[[random.Random, bytes], bytes]] = {
    "flip": _flip,
    "scramble": _scramble,
    "truncate": _truncate,
    "extend": _extend,
    "empty": _empty,
}


def choose(seed: int, files: Mapping[str, Sequence[Path]]) -> Corruption:
    """Return the corruption of a seed: any kind of file with the same chance, then any damage."""
    rng = random.Random(seed)
    while True:
        kind = rng.choice(sorted(files))
        path, damage = rng.choice(files[kind]), rng.choice(DAMAGES)
        found = _fitting(rng, kind, damage, path, files[kind])
        if found is not None:
            return found


def _fitting(
    rng: random.Random, kind: str, damage: str, path: Path, same: Sequence[Path]
) -> Corruption | None:
    seed = rng.randrange(1 << 30)
    data = path.read_bytes()
    if damage in ("swap", "stale"):
        others = [o for o in same if o != path and o.read_bytes() != data]
        if damage == "stale":
            others = [o for o in others if _place(o) < _place(path)]
        if not others:
            return None
        other = rng.choice(others)
        return Corruption(kind=kind, damage=damage, path=path, other=other, seed=seed)
    if damage == "forge":
        following = _next(path, same) if kind in NUMBERED else None
        if following is None:
            return None
        return Corruption(kind=kind, damage=damage, path=following, other=path, seed=seed)
    if not data and damage != "extend" and damage != "delete":
        return None
    return Corruption(kind=kind, damage=damage, path=path, seed=seed)


def _place(path: Path) -> tuple[int, str]:
    number = path.name.lstrip(".").split(".")[0].split("-")[0]
    return (int(number) if number.isdigit() else 0), str(path)


def _next(path: Path, same: Sequence[Path]) -> Path | None:
    """Return the first name after all others, in the folder of a numbered file."""
    beside = [_place(o)[0] for o in same if o.parent == path.parent]
    stem = path.name.split(".")[0].split("-")[0]
    if not stem.isdigit():
        return None
    number = max(beside) + 1
    following = path.parent / path.name.replace(stem, f"{number:0{len(stem)}d}", 1)
    return None if following.exists() else following


def files_by_kind(checkpoint: Path) -> dict[str, list[Path]]:
    """Return all files of a checkpoint and its sinks, by kind, each kind sorted.

    Of published outputs only those whose manifest is kept: older ones belong to their readers, who
    may delete them.
    """
    found = survey(checkpoint)
    kinds: dict[str, list[Path]] = {}
    for place, _ in walk(found.home):
        kinds.setdefault(_kind(found, str(place)), []).append(Path(str(place)))
    orphans = {str(place) for place, _ in found.orphans()}
    waiting = set()
    if found.last is not None:
        published = is_published(found.root, found.last)
        waiting = set() if published else {s.path for s in found.last.staged}
    for folder in found.staging():
        for place, _ in walk(folder):
            kind = "staged" if str(place) in waiting else "orphan"
            kinds.setdefault(kind, []).append(Path(str(place)))
    kinds.setdefault("orphan", []).extend(
        path for path in kinds.get("segment", []) if str(path) in orphans
    )
    kinds["segment"] = [path for path in kinds.get("segment", []) if str(path) not in orphans]
    kinds["published"] = _published(found)
    kinds.pop("", None)
    return {kind: sorted(set(paths)) for kind, paths in kinds.items() if paths}


_FOLDERS = {
    "manifests": "manifest",
    "pinned": "pin",
    "state": "segment",
    "late": "late",
    "dead": "dead",
    "planned": "plan",
    "published": "marker",
}


def _kind(found: Survey, path: str) -> str:
    if path.endswith(".crc"):
        return "crc"
    parts = found.relative(path).split("/")
    if parts[0] == "penstock":
        return _FOLDERS.get(parts[1], "")
    if parts[0] == "rows":
        return "rows"
    return parts[1] if parts[1] in ("offsets", "commits", "sources") else "metadata"


def _published(found: Survey) -> list[Path]:
    paths = []
    for target, kind in found.targets().items():
        for name in os.listdir(target) if kind == "output" and os.path.isdir(target) else ():
            if published_epoch(name) in found.manifests:
                paths += sorted((Path(target) / name).iterdir())
    return paths
