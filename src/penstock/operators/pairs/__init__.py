"""Operators over pairs of rows: joins and products."""
