"""Two drivers on one disk, call by call, in an order that a seed chooses.

Each driver has a thread, and only the one that holds the baton runs. Before every call on the disk
the baton may go to the other. Law: the order of the calls is a value of the seed.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence

from penstock.files.disk import Entry
from penstock.testing.faults.disks import Crash, Fault, FaultyDisk, SimulatedDisk

PATIENCE_SECONDS = 60.0
"""How long a thread waits for the baton before it takes the simulation for stuck."""
Run = Callable[[FaultyDisk], None]


class Baton:
    """Says whose turn it is."""

    def __init__(self, runners: int, choice: random.Random) -> None:
        """Begin with the first runner."""
        self.choice = choice
        self.running = list(range(runners))
        self.turn = 0
        self.changed = threading.Condition()
        self.eagerness = choice.choice((0.05, 0.3, 0.6))

    def wait(self, runner: int) -> None:
        """Wait for one's turn."""
        with self.changed:
            if not self.changed.wait_for(lambda: self.turn == runner, PATIENCE_SECONDS):
                raise TimeoutError(f"runner {runner} never got its turn")

    def pass_on(self, runner: int) -> None:
        """Maybe let another run, and wait until it is one's turn again."""
        if self.choice.random() < self.eagerness:
            with self.changed:
                self.turn = self.choice.choice(self.running)
                self.changed.notify_all()
        self.wait(runner)

    def leave(self, runner: int) -> None:
        """Run no more."""
        with self.changed:
            self.running.remove(runner)
            if self.running:
                self.turn = self.choice.choice(self.running)
            self.changed.notify_all()


class SwitchingDisk(FaultyDisk):
    """A disk on which every call may let another driver run first."""

    def __init__(
        self, disk: SimulatedDisk, faults: Sequence[Fault], baton: Baton, runner: int
    ) -> None:
        """Share a disk with other runners."""
        super().__init__(disk, faults)
        self.baton, self.runner = baton, runner

    def _point(self, call: str, path: str) -> None:
        self.baton.pass_on(self.runner)
        super()._point(call, path)

    def read(self, path: str) -> bytes:
        """Return the bytes of a file."""
        self.baton.pass_on(self.runner)
        return super().read(path)

    def list(self, path: str) -> list[Entry]:
        """Return the names in a folder."""
        self.baton.pass_on(self.runner)
        return super().list(path)

    def is_folder(self, path: str) -> bool:
        """Return whether there is a folder of this name."""
        self.baton.pass_on(self.runner)
        return super().is_folder(path)

    def exists(self, path: str) -> bool:
        """Return whether there is a file or folder of this name."""
        self.baton.pass_on(self.runner)
        return super().exists(path)


def race(
    disk: SimulatedDisk,
    runs: Sequence[Run],
    faults: Sequence[Sequence[Fault]],
    choice: random.Random,
) -> list[BaseException | None]:
    """Run several drivers on one disk at once; return how each ended.

    Args:
        disk: The disk that they share.
        runs: What each does, given its view of the disk.
        faults: The faults of each.
        choice: Chooses who runs next.
    """
    baton = Baton(len(runs), choice)
    ended: list[BaseException | None] = [None] * len(runs)

    def work(runner: int) -> None:
        try:
            baton.wait(runner)
            runs[runner](SwitchingDisk(disk, faults[runner], baton, runner))
        except (Exception, Crash) as error:
            ended[runner] = error
        finally:
            baton.leave(runner)

    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(len(runs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    return ended
