"""Heavy customers: callers whose mean call over an hour is longer than ten minutes.

Try it without data:    penstock explain examples/heavy_customers.py
Run it on a folder:     penstock run examples/heavy_customers.py --checkpoint checkpoint
"""

import os

import polars as pl

import penstock as ps

CALLS = os.environ.get("CALLS", "calls")
SCHEMA = {
    "src": pl.String,
    "dst": pl.String,
    "start": pl.Datetime("us"),
    "end": pl.Datetime("us"),
    "ts": pl.Datetime("us"),
    "district": pl.Int32,
    "lat": pl.Float64,
    "lon": pl.Float64,
}

calls = ps.read_parquet(CALLS, time="ts", delay="5 seconds", schema=SCHEMA)
heavy = (
    calls.map(duration='"end" - start')
    .aggregate(
        by="src",
        window=ps.sliding("1 hour", every="1 minute"),
        calls="count(*)",
        mean="avg(duration)",
    )
    .filter("mean > interval '10 minutes'")
)
query = heavy.write_parquet("heavy", ordered=True)
