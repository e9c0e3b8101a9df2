"""The papers' workloads: made-up data of a known shape, and the queries that read it."""

from penstock.workloads.cdr import CALL_SCHEMA, CallRecords, heavy_customers, live

__all__ = ["CALL_SCHEMA", "CallRecords", "heavy_customers", "live"]
