"""The applications: made-up data of a known shape, and the queries that read it."""

from penstock.workloads.auctions import Market
from penstock.workloads.calls import CALL_SCHEMA, CallRecords, live
from penstock.workloads.cdr import heavy_customers
from penstock.workloads.orders import Orders
from penstock.workloads.packets import Packets
from penstock.workloads.retail import Clicks, Sales

__all__ = [
    "CALL_SCHEMA",
    "CallRecords",
    "Clicks",
    "Market",
    "Orders",
    "Packets",
    "Sales",
    "heavy_customers",
    "live",
]
