"""The network query against a batch job, and against one packet after the other."""

from __future__ import annotations

from collections import defaultdict, deque
from pathlib import Path
from statistics import fmean, stdev

import pytest

from bench.batch.packets import packet_sizes
from bench.compare import frame_difference
from bench.local import run_local
from penstock.workloads import network

MADE = network.Packets(rows=20_000, clients=300)


@pytest.mark.parametrize("instances", [1, 3])
@pytest.mark.parametrize(("k", "every"), [(20, 1), (20, 7), (5, 5)])
def test_last_packets(k: int, every: int, instances: int, tmp_path: Path) -> None:
    got = run_local(
        MADE, lambda rows: network.packet_sizes(rows, k, every), tmp_path, instances=instances
    )
    wanted = packet_sizes(MADE.frame(0, MADE.rows).lazy(), k, every)
    odd = frame_difference(got, wanted)
    assert not odd, odd
    assert wanted.height > 1_000


def test_the_batch_job_is_what_one_packet_after_the_other_gives() -> None:
    last: dict[int, deque[tuple[object, int]]] = defaultdict(lambda: deque(maxlen=20))
    wanted = []
    for client, _, size, ts in MADE.frame(0, MADE.rows).iter_rows():
        last[client].append((ts, size))
        if len(last[client]) == 20:
            sizes = [bytes_ for _, bytes_ in last[client]]
            wanted.append((client, last[client][0][0], ts, fmean(sizes), stdev(sizes)))
    got = packet_sizes(MADE.frame(0, MADE.rows).lazy(), 20, 1).rows()
    assert len(got) == len(wanted) > 1_000
    for mine, theirs in zip(sorted(got), sorted(wanted), strict=True):
        assert mine[:3] == theirs[:3]
        assert mine[3:] == pytest.approx(theirs[3:])
