"""Faults: disks that forget and fail, scenarios to run on them, and what must come of it."""

from penstock.testing.faults.disks import Crash, Fault, FaultyDisk, Point, SimulatedDisk

__all__ = ["Crash", "Fault", "FaultyDisk", "Point", "SimulatedDisk"]
