"""The epoch machine: what the driver decides, what a task does. Spark is only under ``spark``."""
