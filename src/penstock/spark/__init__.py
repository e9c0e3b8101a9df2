"""All that knows PySpark: sources, sinks, jobs, hosts, executors, the handle of a query."""
