"""All that knows PySpark: sources, sinks, jobs, pins, executors, the handle of a query."""
