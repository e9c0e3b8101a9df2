"""Network monitoring, the query of Flux section 3: a statistic over each client's last packets."""

from typing import TYPE_CHECKING

import penstock as ps
from penstock.workloads.packets import PACKET_SCHEMA, Packets

if TYPE_CHECKING:
    from penstock.query.stream import Stream

__all__ = ["PACKET_SCHEMA", "Packets", "packet_sizes"]


def packet_sizes(packets: "Stream", k: int = 100, every: int = 10) -> "Stream":
    """Return mean and deviation of the sizes of each client's last `k` packets.

    A result comes with every `every`-th packet of a client, from its `k`-th on; 1 is the paper's.
    """
    return packets.aggregate(
        by="client",
        window=ps.count_window(k, every=every),
        mean="avg(bytes)",
        deviation="stddev(bytes)",
    )
