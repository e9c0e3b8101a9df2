"""Penstock: continuous queries on Apache Spark, exact, in order, balanced and elastic."""

import logging

from penstock.base.errors import (
    CheckpointError,
    ConfigError,
    FencedError,
    FinishedError,
    OutputError,
    PenstockError,
    PenstockWarning,
    QueryError,
    RefusedLimitError,
    TaskError,
)
from penstock.control.elastic import Elastic, elastic
from penstock.query.engine import use_engine
from penstock.query.processes import BatchProcess, Context, Process
from penstock.query.sketches import approx_distinct, approx_quantile
from penstock.query.stream import Sinks, Stream
from penstock.query.windows import (
    CountWindow,
    SessionWindow,
    TimeWindow,
    count_window,
    session,
    sliding,
    tumbling,
)
from penstock.sources.read import (
    at,
    from_rows,
    read_arrow,
    read_csv,
    read_ndjson,
    read_parquet,
)
from penstock.spark.engine import SparkEngine
from penstock.spark.read import from_spark
from penstock.sql import sql

use_engine(SparkEngine())
logging.getLogger(__name__).addHandler(logging.NullHandler())  # whoever wants the log shows it

__version__ = "0.1.0"

__all__ = [
    "BatchProcess",
    "CheckpointError",
    "ConfigError",
    "Context",
    "CountWindow",
    "Elastic",
    "FencedError",
    "FinishedError",
    "OutputError",
    "PenstockError",
    "PenstockWarning",
    "Process",
    "QueryError",
    "RefusedLimitError",
    "SessionWindow",
    "Sinks",
    "Stream",
    "TaskError",
    "TimeWindow",
    "approx_distinct",
    "approx_quantile",
    "at",
    "count_window",
    "elastic",
    "from_rows",
    "from_spark",
    "read_arrow",
    "read_csv",
    "read_ndjson",
    "read_parquet",
    "session",
    "sliding",
    "sql",
    "tumbling",
]
