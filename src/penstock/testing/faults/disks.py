"""Disks that fail: one in memory that forgets what was not synced, and one that stops at a call.

Law: a `SimulatedDisk` answers as the disk of this machine does until it crashes; after a crash it
has everything that was synced, and of the rest whatever a seed chooses, torn or whole.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from penstock.files.disk import Disk, Entry

ROOT = 0
_Key = tuple[int, str]
"""A name: the number of its folder, and the name in it."""


class Crash(BaseException):
    """The process dies here, or the machine; nothing may handle it."""


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)


@dataclass(slots=True)
class _File:
    data: bytes
    synced: bool


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of names that happens as a whole or not at all.

    ``after`` are names whose earlier changes have to last if this one does.
    """

    names: tuple[tuple[_Key, int | None], ...]
    after: frozenset[_Key]


@dataclass(slots=True)
class SimulatedDisk:
    """A disk in memory with the crashes of a real one.

    Bytes last when their file is synced, names when their folder is synced. Of names that were not
    synced each is kept or lost at a crash, whatever the others are, but in order for each name, and
    a rename is whole. A file whose name lasts and whose bytes were not synced is whole, empty, cut
    short or has garbage at its end.

    >>> disk = SimulatedDisk()
    >>> disk.create("/a", b"hello", sync=True)
    >>> disk.sync("/")
    >>> disk.create("/b", b"hello", sync=True)
    >>> disk.crash(random.Random(4), keep=0.0)
    >>> [entry.name for entry in disk.list("/")]
    ['a']
    """

    _files: dict[int, _File] = field(default_factory=dict)
    _folders: dict[int, dict[str, int]] = field(default_factory=lambda: {ROOT: {}})
    _lasting: dict[_Key, int] = field(default_factory=dict)
    _pending: list[_Change] = field(default_factory=list)
    _made: int = ROOT

    def create(self, path: str, data: bytes, *, sync: bool) -> None:
        """Write a file that must not exist, and sync it if asked."""
        key = self._vacant(path)
        number = self._new()
        self._files[number] = _File(data, sync)
        self._change([(key, number)])

    def make_folder(self, path: str) -> None:
        """Make a folder; its parent must exist."""
        key = self._vacant(path)
        number = self._new()
        self._folders[number] = {}
        self._change([(key, number)])

    def link(self, old: str, new: str) -> None:
        """Give a file a second name, which must not exist."""
        number = self._find(old)
        key = self._vacant(new)
        if number in self._folders:
            raise _error(errno.EPERM, old)
        self._change([(key, number)])

    def rename(self, old: str, new: str) -> None:
        """Move a file over another, or a folder over an empty one or none."""
        source, target = self._key(old), self._key(new)
        moved = self._find(old)
        replaced = self._folders[target[0]].get(target[1])
        if moved in self._folders and self._inside(moved, target):
            raise _error(errno.EINVAL, old)
        if replaced == moved:
            return
        emptied = self._replaceable(moved, replaced, source, new)
        self._change([(source, None), (target, moved)], emptied)

    def _replaceable(self, moved: int, replaced: int | None, source: _Key, new: str) -> int | None:
        """Check that one thing may take another's name; return the empty folder that goes."""
        if replaced is None:
            return None
        if replaced in self._folders and self._inside(replaced, source):
            raise _error(errno.ENOTEMPTY, new)
        if moved in self._folders and replaced not in self._folders:
            raise _error(errno.ENOTDIR, new)
        if moved not in self._folders and replaced in self._folders:
            raise _error(errno.EISDIR, new)
        if self._folders.get(replaced):
            raise _error(errno.ENOTEMPTY, new)
        return replaced if replaced in self._folders else None

    def unlink(self, path: str) -> None:
        """Remove a file's name."""
        key = self._key(path)
        if self._find(path) in self._folders:
            raise _error(errno.EISDIR, path)
        self._change([(key, None)])

    def remove_folder(self, path: str) -> None:
        """Remove an empty folder."""
        key, number = self._key(path), self._folder(path)
        if self._folders[number]:
            raise _error(errno.ENOTEMPTY, path)
        self._change([(key, None)], number)

    def sync(self, path: str) -> None:
        """Make the bytes of a file, or the names in a folder, last."""
        number = self._find(path)
        if number in self._files:
            self._files[number].synced = True
            return
        wanted: set[_Key] = set()
        kept: list[_Change] = []
        left: list[_Change] = []
        for change in reversed(self._pending):
            names = {key for key, _ in change.names}
            if names & wanted or any(folder == number for folder, _ in names):
                wanted |= names | change.after
                kept.append(change)
            else:
                left.append(change)
        self._pending = left[::-1]
        for change in reversed(kept):
            self._make_last(change)

    def read(self, path: str) -> bytes:
        """Return the bytes of a file."""
        number = self._find(path)
        if number in self._folders:
            raise _error(errno.EISDIR, path)
        return self._files[number].data

    def list(self, path: str) -> list[Entry]:
        """Return the names in a folder."""
        return [self._entry(name, n) for name, n in self._folders[self._folder(path)].items()]

    def _entry(self, name: str, number: int) -> Entry:
        if number in self._folders:
            return Entry(name=name, folder=True)
        return Entry(name=name, bytes=len(self._files[number].data))

    def is_folder(self, path: str) -> bool:
        """Return whether there is a folder of this name."""
        try:
            return self._find(path) in self._folders
        except OSError:
            return False

    def exists(self, path: str) -> bool:
        """Return whether there is a file or folder of this name."""
        try:
            self._find(path)
        except OSError:
            return False
        return True

    def crash(self, choice: random.Random, *, keep: float | None = None) -> None:
        """Lose power: what was not synced is kept, lost or torn.

        Args:
            choice: Chooses.
            keep: How likely each change of names is kept; chosen too unless given.
        """
        likely = choice.choice((0.0, 0.1, 0.5, 0.9, 1.0)) if keep is None else keep
        lost: set[_Key] = set()
        for change in self._pending:
            names = {key for key, _ in change.names}
            if (names | change.after) & lost or choice.random() >= likely:
                lost |= names
            else:
                self._make_last(change)
        self._pending.clear()
        self._restart(choice)

    def _restart(self, choice: random.Random) -> None:
        """Forget all that only memory knew."""
        self._folders = {ROOT: {}}
        for (folder, name), number in self._lasting.items():
            self._folders.setdefault(folder, {})[name] = number
            if number not in self._files:
                self._folders.setdefault(number, {})
        found = self._reachable()
        self._folders = {n: names for n, names in self._folders.items() if n in found}
        self._files = {n: _torn(file, choice) for n, file in self._files.items() if n in found}
        self._lasting = {key: n for key, n in self._lasting.items() if key[0] in found}

    def _reachable(self) -> set[int]:
        found, waiting = {ROOT}, [ROOT]
        while waiting:
            for number in self._folders.get(waiting.pop(), {}).values():
                if number not in found:
                    found.add(number)
                    waiting.append(number)
        return found

    def copy(self) -> SimulatedDisk:
        """Return a disk of the same content and the same past."""
        return SimulatedDisk(
            {number: replace(file) for number, file in self._files.items()},
            {number: dict(names) for number, names in self._folders.items()},
            dict(self._lasting),
            list(self._pending),
            self._made,
        )

    def files(self, path: str = "/") -> dict[str, bytes]:
        """Return all files below a folder, by path."""
        found: dict[str, bytes] = {}
        for name, number in self._folders[self._folder(path)].items():
            whole = f"{path.rstrip('/')}/{name}"
            if number in self._folders:
                found |= self.files(whole)
            else:
                found[whole] = self._files[number].data
        return found

    def _change(self, names: Sequence[tuple[_Key, int | None]], emptied: int | None = None) -> None:
        """Change names now, for as long as there is no crash."""
        after = {key for key, _ in names}
        if emptied is not None:  # what left the folder before it went has left it
            after |= {k for c in self._pending for k, _ in c.names if k[0] == emptied}
        self._pending.append(_Change(tuple(names), frozenset(after)))
        for (folder, name), number in names:
            if number is None:
                del self._folders[folder][name]
            else:
                self._folders[folder][name] = number
        if emptied is not None:
            del self._folders[emptied]

    def _make_last(self, change: _Change) -> None:
        for key, number in change.names:
            if number is None:
                self._lasting.pop(key, None)
            else:
                self._lasting[key] = number

    def _new(self) -> int:
        self._made += 1
        return self._made

    def _find(self, path: str) -> int:
        number = ROOT
        for part in _parts(path):
            if number not in self._folders:
                raise _error(errno.ENOTDIR, path)
            if part not in self._folders[number]:
                raise _error(errno.ENOENT, path)
            number = self._folders[number][part]
        return number

    def _folder(self, path: str) -> int:
        number = self._find(path)
        if number not in self._folders:
            raise _error(errno.ENOTDIR, path)
        return number

    def _key(self, path: str) -> _Key:
        """Return the name of a path, whose folder must exist."""
        parts = _parts(path)
        if not parts:
            raise _error(errno.EBUSY, path)
        try:
            return self._folder("/".join(parts[:-1])), parts[-1]
        except OSError as error:
            raise _error(error.errno or errno.EIO, path) from None

    def _vacant(self, path: str) -> _Key:
        if not _parts(path):
            raise _error(errno.EEXIST, path)
        key = self._key(path)
        if key[1] in self._folders[key[0]]:
            raise _error(errno.EEXIST, path)
        return key

    def _inside(self, folder: int, key: _Key) -> bool:
        """Return whether a name is in a folder or below it."""
        waiting, found = [folder], set()
        while waiting:
            number = waiting.pop()
            found.add(number)
            waiting += [n for n in self._folders[number].values() if n in self._folders]
        return key[0] in found


def _torn(file: _File, choice: random.Random) -> _File:
    """Return what a crash leaves of a file."""
    if file.synced or not file.data:
        return _File(file.data, True)
    kept = file.data[: choice.randrange(len(file.data))]
    garbage = choice.randbytes(len(file.data) - len(kept))
    return _File(choice.choice((file.data, b"", kept, kept + garbage)), True)


@dataclass(frozen=True, slots=True)
class Point:
    """A place in a run at which it can be stopped: before a call, or inside one."""

    number: int
    call: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What goes wrong at a point; by default the process dies.

    Attributes:
        at: The number of the point.
        code: If given, the call fails with this error number instead.
        lasting: Whether all later calls of that kind fail too, until the disk is wrapped anew.
        hook: If given, it is called instead; if it returns, the run goes on.
    """

    at: int
    code: int | None = None
    lasting: bool = False
    hook: Callable[[Point], None] | None = None


_FREEING = ("unlink", "remove_folder")
_FULL = (errno.ENOSPC, errno.EDQUOT)


class FaultyDisk:
    """A disk whose calls are numbered, and that fails where it is told to.

    Every call that changes something is a point. Writing a file is several: before it, after a part
    of its bytes, after all of them, and after they were synced. After a `Crash` the process is
    dead: all calls raise it again.

    >>> disk = FaultyDisk(SimulatedDisk(), [Fault(at=1)])
    >>> disk.make_folder("/a")
    >>> try:
    ...     disk.make_folder("/b")
    ... except Crash:
    ...     print([point.path for point in disk.trace])
    ['/a', '/b']
    """

    def __init__(self, disk: Disk, faults: Sequence[Fault] = ()) -> None:
        """Wrap a disk."""
        self.disk = disk
        self.faults = {fault.at: fault for fault in faults}
        self.trace: list[Point] = []
        self.injected = 0
        self.dead = False
        self._lasting: Fault | None = None

    def _alive(self) -> None:
        if self.dead:
            raise Crash

    def _point(self, call: str, path: str) -> None:
        """Pass a point, or fail there."""
        self._alive()
        point = Point(len(self.trace), call, path)
        self.trace.append(point)
        fault = self.faults.get(point.number)
        if fault is not None:
            self.injected += 1
            self._fail(fault, point)
        elif self._lasting is not None and self._affects(self._lasting, call):
            assert self._lasting.code is not None
            raise _error(self._lasting.code, path)

    def _affects(self, fault: Fault, call: str) -> bool:
        """Return whether a lasting error concerns a call: a full disk still lets files go."""
        return not (fault.code in _FULL and call in _FREEING)

    def _fail(self, fault: Fault, point: Point) -> None:
        if fault.hook is not None:
            fault.hook(point)
        elif fault.code is not None:
            self._lasting = fault if fault.lasting else None
            raise _error(fault.code, point.path)
        else:
            self.die()

    def die(self) -> None:
        """Die here."""
        self.dead = True
        raise Crash

    def _due(self) -> bool:
        return len(self.trace) in self.faults

    def create(self, path: str, data: bytes, *, sync: bool) -> None:
        """Write a file that must not exist; three or four points."""
        self._point("create", path)
        if self._due():
            self.disk.create(path, data[: len(data) // 2], sync=False)
            self._point("create: a part", path)
            self.disk.unlink(path)
        else:
            self._point("create: a part", path)
        if sync and self._due():
            self.disk.create(path, data, sync=False)
            self._point("create: written", path)
            self.disk.sync(path)
        else:
            if sync:
                self._point("create: written", path)
            self.disk.create(path, data, sync=sync)
        self._point("create: done", path)

    def make_folder(self, path: str) -> None:
        """Make a folder."""
        self._point("make_folder", path)
        self.disk.make_folder(path)

    def link(self, old: str, new: str) -> None:
        """Give a file a second name."""
        self._point("link", new)
        self.disk.link(old, new)

    def rename(self, old: str, new: str) -> None:
        """Move a file or folder."""
        self._point("rename", new)
        self.disk.rename(old, new)

    def unlink(self, path: str) -> None:
        """Remove a file's name."""
        self._point("unlink", path)
        self.disk.unlink(path)

    def remove_folder(self, path: str) -> None:
        """Remove an empty folder."""
        self._point("remove_folder", path)
        self.disk.remove_folder(path)

    def sync(self, path: str) -> None:
        """Sync a file or folder."""
        self._point("sync", path)
        self.disk.sync(path)

    def read(self, path: str) -> bytes:
        """Return the bytes of a file."""
        self._alive()
        return self.disk.read(path)

    def list(self, path: str) -> list[Entry]:
        """Return the names in a folder."""
        self._alive()
        return self.disk.list(path)

    def is_folder(self, path: str) -> bool:
        """Return whether there is a folder of this name."""
        self._alive()
        return self.disk.is_folder(path)

    def exists(self, path: str) -> bool:
        """Return whether there is a file or folder of this name."""
        self._alive()
        return self.disk.exists(path)
