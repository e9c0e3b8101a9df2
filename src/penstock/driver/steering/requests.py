"""Requests to a query that runs elsewhere, through its checkpoint.

Another process asks by a small sealed file under ``requests/``. The driver looks there before an
epoch; the epoch carries what was asked for, and its record is the answer. Laws: a request takes
effect once, whoever dies when: its file goes only after the epoch that carries it is committed, and
what a committed epoch has carried is not taken up again. A file that is no request costs the query
a refusal and nothing else.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from penstock.base.errors import ConfigError, PenstockError
from penstock.files.disk import Entry
from penstock.files.place import Place
from penstock.files.sealed import seal, unseal
from penstock.observe.log import read_events
from penstock.plan.changes import (
    USER,
    Change,
    ChangeKind,
    MoveProtocol,
    Reconfiguration,
    newest,
    read_protocol,
)
from penstock.state.manifests import Manifest

FOLDER = "requests"
KIND = "request"
MOST_BYTES = 65_536
"""A larger file is no request, and neither is an empty one; it is refused unread."""
_MOST = 100
"""So many requests are taken up before an epoch; the rest waits for the next."""
_NAME = re.compile(r"(\d{15}-[\w-]+)\.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What another process asks of a running query.

    Attributes:
        kind: What is asked for.
        subquery: The subquery's number or name; empty for all of them, if they are to be balanced.
        instances: How many instances it shall have (``rescale``).
        moves: Buckets and the instances that shall own them (``move``).
        protocol: How state moves, see `penstock.plan.changes.MoveProtocol`.

    >>> Request(kind="rescale", subquery="aggregate-0", instances=0)
    Traceback (most recent call last):
    ...
    penstock.base.errors.ConfigError: instances=0 is not allowed; allowed: 1 or more
    """

    kind: ChangeKind
    subquery: str = ""
    instances: int = 0
    moves: tuple[tuple[int, int], ...] = ()
    protocol: MoveProtocol = "auto"

    def __post_init__(self) -> None:
        if self.kind == "rescale" and self.instances < 1:
            raise ConfigError(name="instances", value=self.instances, allowed="1 or more")
        if self.kind == "move" and not self.moves:
            raise ConfigError(name="moves", value=self.moves, allowed="one bucket or more")
        if self.kind != "rebalance" and not self.subquery:
            raise ConfigError(name="subquery", value="", allowed="a number or a name")
        read_protocol(self.protocol)


class RefusedError(PenstockError):
    """A request that makes sense but changes nothing."""

    def __str__(self) -> str:
        return str(self.fields["reason"])


def ask(root: Place, request: Request, *, now: float | None = None) -> str:
    """Leave a request in a checkpoint; return its id.

    Args:
        root: Penstock's folder in the checkpoint.
        request: What is asked for.
        now: The time, by which requests are ordered.
    """
    at = time.time() if now is None else now
    name = f"{int(at * 1000):015d}-{root.files.unique()}"
    (root / FOLDER / f"{name}.json").write_new(seal(KIND, request))
    return name


def waits(root: Place, request: str) -> bool:
    """Return whether a request has not been answered yet."""
    return (root / FOLDER / f"{request}.json").exists()


def answers(root: Place, request: str) -> list[Reconfiguration]:
    """Return what became of a request, the newest record of each change; nothing while it waits."""
    found = read_events(root, "reconfiguration")
    return newest(e for e in found if isinstance(e, Reconfiguration) and e.request == request)


Act = Callable[[Request, str], Sequence[Change]]
"""Asks the layout for what a request with an id wants; raises if it cannot be."""


class Requests:
    """The driver's side: takes requests up before an epoch, and removes them after its commit."""

    def __init__(
        self, root: Place, *, clock: Callable[[], float] = time.time, seconds: float = 1.0
    ) -> None:
        """Look into a checkpoint, at most once in so many seconds."""
        self.root, self.clock, self.seconds = root, clock, seconds
        self._looked_at: float | None = None
        self._taken: list[str] = []
        self._known: set[str] = set()
        self._carried: set[str] | None = None

    def take_up(self, epoch: int, last: Manifest | None, act: Act) -> list[Reconfiguration]:
        """Ask for what waits, to take effect with an epoch; return what was refused, and why.

        Args:
            epoch: The epoch that is about to begin.
            last: The manifest before it.
            act: Asks for what a request wants.
        """
        now = self.clock()
        if self._looked_at is not None and 0 <= now - self._looked_at < self.seconds:
            return []
        self._looked_at = now
        try:
            found = self._new_entries(last)
        except OSError:  # another time
            return []
        refused = []
        for request, entry in found[:_MOST]:
            self._known.add(request)
            reason = self._take(request, entry, act)
            if reason is not None:
                refused.append(_refusal(request, epoch, now, reason))
            self._taken.append(request)
        return refused

    def _new_entries(self, last: Manifest | None) -> list[tuple[str, Entry]]:
        entries = (self.root / FOLDER).list()
        named = [(match[1], e) for e in entries if (match := _NAME.fullmatch(e.name))]
        new = [(request, entry) for request, entry in named if request not in self._known]
        if new and self._carried is None:
            self._carried = self._find_carried_before(last)
        return sorted(new, key=lambda pair: pair[0])

    def _find_carried_before(self, last: Manifest | None) -> set[str]:
        """Return what committed epochs of earlier runs have carried."""
        records = list(last.reconfigured) if last else []
        with suppress(PenstockError):  # a damaged event; the manifest is what counts
            found = read_events(self.root, "reconfiguration")
            records += [e for e in found if isinstance(e, Reconfiguration)]
        return {record.request for record in records if record.outcome != "refused"}

    def _take(self, request: str, entry: Entry, act: Act) -> str | None:
        """Act on a request; return why not, if it cannot be."""
        if request in (self._carried or ()):
            return None
        if entry.folder or not 0 < entry.bytes <= MOST_BYTES:
            return f"the file of the request is no file of 1 to {MOST_BYTES} bytes"
        place = self.root / FOLDER / entry.name
        try:
            asked = unseal(KIND, place, Request)
        except FileNotFoundError:  # withdrawn
            return None
        except Exception as error:  # whatever is in the file, it must not hurt the query
            return f"it is no request: {str(error) or type(error).__name__}"
        try:
            act(asked, request)
        except PenstockError as error:
            return str(error)
        return None

    def committed(self) -> None:
        """Remove what the epoch that was just committed has carried, and what was refused."""
        taken, self._taken = self._taken, []
        for request in taken:
            try:
                (self.root / FOLDER / f"{request}.json").delete()
                self._known.discard(request)
            except OSError:  # it stays known, so it is not taken up again
                continue


def _refusal(request: str, epoch: int, at: float, reason: str) -> Reconfiguration:
    return Reconfiguration(
        id=request,
        epoch=epoch,
        at=at,
        subquery=-1,
        name="",
        kind="request",
        cause=USER,
        protocol="",
        before=0,
        after=0,
        buckets=0,
        bytes=0,
        seconds=0.0,
        outcome="refused",
        sentence=f"the request of the user was refused before epoch {epoch}: {reason}",
        request=request,
    )
