"""Penstock's SQL held against DuckDB's, statement by statement and row by row.

Law: a statement gives the same in both, or fails in both, or differs in a way that has a name in
docs/sql.md. What differs and has no name is a defect. ``python -m bench.differ`` runs it.
"""
