"""The outputs of committed epochs: sinks, late rows, dead letters.

Law: what a committed epoch has staged is published, by the driver that committed it or by the next
one; a file goes where it was meant to go when it was staged, whatever the query is now. How that is
done, and how often rows can be seen, is for the kind of sink to say (`penstock.sinks.sink`).
"""

from __future__ import annotations

import polars as pl

from penstock.files.place import Place, place_of
from penstock.plan.compiled import CompiledQuery
from penstock.plan.epoch import SinkPlan, StagedFile
from penstock.query.nodes import Sink
from penstock.sinks.publish import read_published
from penstock.sinks.registry import find_kind
from penstock.sinks.sink import Committed, Kinds, LastingKind, Opening, OpenSink
from penstock.state.manifests import Manifest, output_name
from penstock.state.published import is_published, mark_published, published_marker


class Outputs:
    """Where a query's outputs wait, and how they become visible."""

    def __init__(
        self,
        root: Place,
        query: CompiledQuery,
        *,
        kinds: Kinds = find_kind,
        session: object = None,
        fsync: bool,
        owner: str,
        last: Manifest | None,
    ) -> None:
        """Open the sinks of a query.

        Args:
            root: Penstock's folder in the checkpoint.
            query: The query.
            kinds: Finds the kinds of sinks.
            session: The session of the engine, for sinks that give rows to it.
            fsync: Whether files are synced.
            owner: The query's own word.
            last: The newest manifest.

        Raises:
            OutputError: A sink's place belongs to another query.
        """
        self.root, self.kinds, self.session = root, kinds, session
        self.fsync, self.owner = fsync, owner
        targets = self._targets(query)
        # Those that last come first: a function that raises then holds none of them back.
        ordered = sorted(query.sinks, key=lambda found: not self._lasts(found[1]))
        self.sinks = {n: self._open(n, sink, targets[n], last) for n, sink in ordered}
        self._published: tuple[StagedFile, ...] = ()

    @property
    def plans(self) -> dict[int, SinkPlan]:
        """Where the rows of each sink go."""
        return {number: sink.plan for number, sink in self.sinks.items()}

    @property
    def staging(self) -> list[Place]:
        """The folders outside of the checkpoint in which files wait."""
        folders = sorted({plan.staging for plan in self.plans.values()} - {self._own_staging})
        return [place_of(folder, fsync=self.fsync) for folder in folders]

    @property
    def _own_staging(self) -> str:
        return f"{self.root}/staged"

    def publish(self, manifest: Manifest, *, verify: bool = False) -> None:
        """Make what an epoch has staged visible, unless that was done before.

        Args:
            manifest: The manifest of the epoch.
            verify: Whether the files may be damaged, as after a crash.

        Raises:
            CheckpointError: A staged file is missing or damaged.
        """
        if is_published(self.root, manifest):
            return
        for sink in (*self._without_sink(manifest), *self.sinks.values()):
            sink.publish(_make_committed(manifest, sink.plan.target, recovered=verify))
        mark_published(self.root, manifest)
        self._forget(manifest)

    def _without_sink(self, manifest: Manifest) -> list[OpenSink]:
        """Return who takes files that no sink of the query waits for."""
        ours = {sink.plan.target for sink in self.sinks.values()}
        found = []
        for target in sorted({staged.target for staged in manifest.staged} - ours):
            kind = self.kinds(manifest.output(target).kind)
            found.append(kind.take_over(target, owner=self.owner, fsync=self.fsync))
        return [sink for sink in found if sink is not None]

    def _forget(self, manifest: Manifest) -> None:
        """Remove what the epoch before has left: its marker and files for other sinks.

        A sink's function may use its frame for as long as the next epoch has not come.
        """
        published_marker(self.root, manifest.epoch - 1).delete()
        for staged in self._published:
            place_of(staged.path, fsync=self.fsync).delete()
        ours = f"{self._own_staging}/"
        self._published = tuple(s for s in manifest.staged if s.path.startswith(ours))

    def _lasts(self, sink: Sink) -> bool:
        return isinstance(self.kinds(sink.kind), LastingKind)

    def _targets(self, query: CompiledQuery) -> dict[int, str]:
        """Return the name of each sink; of several with one name, all but one get a number."""
        names = {number: self.kinds(sink.kind).name(sink) for number, sink in query.sinks}
        found: dict[int, str] = {}
        for number, name in names.items():
            same = sum(names[before] == name for before in found)
            found[number] = f"{name} #{same + 1}" if same else name
        return found

    def _open(self, number: int, sink: Sink, target: str, last: Manifest | None) -> OpenSink:
        staged = last is not None and any(file.target == target for file in last.staged)
        opening = Opening(
            number=number,
            target=target,
            root=self.root,
            owner=self.owner,
            next_epoch=last.epoch + 1 if last else 0,
            known=last.outputs.get(output_name(target)) if last else None,
            waits=last is not None and staged and not is_published(self.root, last),
            fsync=self.fsync,
            session=self.session,
        )
        return self.kinds(sink.kind).open(sink, opening)

    def close(self) -> None:
        """Close the sinks."""
        for sink in self.sinks.values():
            sink.close()


def _make_committed(manifest: Manifest, target: str, *, recovered: bool) -> Committed:
    return Committed(
        epoch=manifest.epoch,
        number=manifest.output(target).first + manifest.epoch,
        files=tuple(staged for staged in manifest.staged if staged.target == target),
        recovered=recovered,
    )


def read_side_output(root: Place, kind: str) -> dict[int, pl.DataFrame]:
    """Return the published late rows or dead letters of a checkpoint, by source.

    Raises:
        CheckpointError: A file is damaged.
    """
    found = {}
    for entry in (root / kind).list():
        epochs = read_published(root / kind / entry.name)
        frames = [
            frame.with_columns(pl.lit(epoch, dtype=pl.Int64).alias("epoch"))
            for epoch, frame in epochs.items()
        ]
        if frames:
            found[int(entry.name)] = pl.concat(frames, how="diagonal")
    return found
