"""I/O errors: every point of a real epoch fails with a full disk, a broken one, or a quota.

Once, or from then on until the restart. Law: the query stops with an error that says so, or did not
need what failed; no epoch is committed wrongly, and after a restart all is as it should be.
"""

from __future__ import annotations

import errno
from itertools import product

from faults.real import Stage, stage
from faults.report import CampaignResult, Log
from faults.tally import Tally
from penstock.base.errors import PenstockError
from penstock.files.disk import RealDisk
from penstock.testing.faults.disks import Fault, FaultyDisk, Point
from penstock.testing.faults.machine import Life, Machine
from penstock.testing.faults.oracle import Difference

CODES = (errno.ENOSPC, errno.EIO, errno.EDQUOT)


def run(trials: int, seed: int, log: Log) -> CampaignResult:
    """Fail at all points of an epoch in all ways, or at some of them if fewer trials are asked."""
    tally = Tally(campaign="io-errors", log=log)
    with stage() as found:
        points = found.points()
        ways = list(product(range(len(points)), CODES, (False, True)))
        step = max(1, len(ways) // trials) if trials else 1
        chosen = ways[seed % step :: step]
        for at, code, lasting in chosen:
            _fail_at(found, tally, points[at], Fault(at=at, code=code, lasting=lasting))
        return tally.result(len({at for at, _, _ in chosen}), len(points))


def _fail_at(found: Stage, tally: Tally, point: Point, fault: Fault) -> None:
    """Fail at a point of the epoch, restart, go on."""
    assert fault.code is not None
    name = f"{errno.errorcode[fault.code]} at {fault.at} ({point.call})"
    odd, stopped = Difference(), False
    with found.again() as machine:
        try:
            stopped = _stopped(machine, fault)
            odd = found.finish(machine)
        except Exception as error:  # whatever it is, the trial has failed
            odd.add(f"{type(error).__name__}: {error}")
        tally.add(name, odd, detected=stopped, recovery_ms=machine.recovery_ms[1:2])


def _stopped(machine: Machine, fault: Fault) -> bool:
    """Run the epoch with a fault; return whether that stopped the query."""
    disk = FaultyDisk(RealDisk())
    life = Life(machine, disk)
    at = len(disk.trace) + fault.at
    disk.faults = {at: Fault(at=at, code=fault.code, lasting=fault.lasting)}
    try:
        life.step()
    except (OSError, PenstockError) as error:
        if not str(error):
            raise AssertionError(f"an error without a text: {error!r}") from error
        return True
    finally:
        assert disk.injected, "the point was not reached"
    return False
