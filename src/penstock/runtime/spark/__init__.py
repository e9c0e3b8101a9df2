"""Penstock on Spark: starting queries, running epochs as Spark jobs, the handle."""
