"""Operators that keep a little of each key: dedup, tables that change, processes."""
