"""Operators over windows: aggregates, sessions, windows of rows, top."""
