"""Kernels: what operators do to frames. Polars only; no Spark, no files, no clock."""
