"""The figures by name: what the paper claims, and who measures it."""

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench.streamcloud import (
    balance,
    operators,
    overhead,
    protocols,
    provisioning,
    strategies,
)
from bench.streamcloud.cpu import CpuSampler, cores_between
from bench.streamcloud.result import Machine, Measured, Result


class Measure(Protocol):
    """Measures a figure in a folder of its own; `quick` is a short form that shows the way."""

    def __call__(self, folder: Path, *, quick: bool, log: Callable[[str], None]) -> Measured:
        """Run what the figure needs and return what was found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure or a table of the paper."""

    name: str
    title: str
    claim: str
    measure: Measure


_ALL = (
    Figure(
        name="14",
        title="Parallelisation strategies: what the processors do",
        claim=(
            "With 30 instances, distribution takes 40 % of the CPU in the query-cloud, more than "
            "30 % in the operator-cloud and 10 % in the operator-set-cloud."
        ),
        measure=strategies.breakdown,
    ),
    Figure(
        name="15",
        title="Parallelisation strategies: scalability",
        claim=(
            "The operator-set-cloud sustains 2.5 times the load of the operator-cloud and 5 times "
            "that of the query-cloud."
        ),
        measure=strategies.scalability,
    ),
    Figure(
        name="16",
        title="Single operators under a growing load",
        claim=(
            "Throughput follows the injected load up to saturation, when queues grow; twice the "
            "instances handle twice the load, for aggregate, map, join and Cartesian product."
        ),
        measure=operators.scalability,
    ),
    Figure(
        name="18",
        title="Join: instances on one machine",
        claim="The join's throughput is linear in the number of instances, up to one a core.",
        measure=operators.instances_per_node,
    ),
    Figure(
        name="19",
        title="State recreation and window recreation",
        claim=(
            "State recreation takes longer and moves more bytes the more windows there are; window "
            "recreation takes about a window, however many there are, and moves nothing."
        ),
        measure=protocols.recreation,
    ),
    Figure(
        name="20a",
        title="Load balancing, the mean of the keys moves",
        claim=(
            "Without balancing the deviation of the utilisation grows with each change of the "
            "distribution; with it, it is back under UIT after each change."
        ),
        measure=balance.moving_mean,
    ),
    Figure(
        name="20b",
        title="Load balancing, the deviation of the keys shrinks",
        claim=(
            "Without balancing the imbalance grows as fewer keys have the load; with it, the "
            "deviation of the utilisation is kept under UIT."
        ),
        measure=balance.shrinking_deviation,
    ),
    Figure(
        name="21a",
        title="Individual provisioning under a rising load",
        claim=(
            "One instance at a time reaches the target only at small sizes; at larger ones the "
            "utilisation stays near the upper threshold, and provisioning follows provisioning."
        ),
        measure=provisioning.individual,
    ),
    Figure(
        name="21b",
        title="Load-aware provisioning under a rising load",
        claim=(
            "Each step reaches the target utilisation, and there are fewer reconfigurations than "
            "with individual provisioning."
        ),
        measure=provisioning.load_aware,
    ),
    Figure(
        name="21c",
        title="Decommissioning under a falling load",
        claim=(
            "Instances are given back as effectively as they are provisioned; the utilisation "
            "after a step is slightly below the target."
        ),
        measure=provisioning.decommissioning,
    ),
    Figure(
        name="table1",
        title="Static and elastic configurations",
        claim="At the same size, static and elastic runs have about the same throughput and CPU.",
        measure=overhead.overhead,
    ),
)
FIGURES: dict[str, Figure] = {figure.name: figure for figure in _ALL}


def chosen(names: str) -> list[Figure]:
    """Return the figures that a comma-separated text names; `all` for all.

    Raises:
        ValueError: There is no such figure.
    """
    wanted = list(FIGURES) if names == "all" else [name.strip() for name in names.split(",")]
    unknown = [name for name in wanted if name not in FIGURES]
    if unknown:
        raise ValueError(
            f"no such figure: {', '.join(map(repr, unknown))}; figures: {', '.join(FIGURES)}, all"
        )
    return [FIGURES[name] for name in wanted]


def measure(figure: Figure, *, quick: bool, log: Callable[[str], None]) -> Result:
    """Measure one figure; nothing that was made for it is left."""
    since = time.time()
    with tempfile.TemporaryDirectory(prefix="penstock-streamcloud-") as name, CpuSampler() as cpu:
        found = figure.measure(Path(name), quick=quick, log=log)
    _, others = cores_between(cpu.samples, cpu.samples[0].at, cpu.samples[-1].at)
    short = " --quick" if quick else ""
    return Result(
        figure=figure.name,
        title=figure.title,
        claim=figure.claim,
        holds=found.holds,
        by=found.by,
        series=found.panels,
        parameters=found.parameters,
        notes=found.notes,
        machine=Machine.here(others),
        command=f"penstock bench streamcloud --figure {figure.name}{short}",
        seconds=round(time.time() - since, 1),
        quick=quick,
    )
