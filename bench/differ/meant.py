"""The differences from DuckDB that are meant, by their names in docs/sql.md."""

from __future__ import annotations

from bench.differ.aggregates import AGGREGATES
from bench.differ.form import KEPT
from bench.differ.forms import FORMS

CONSTANTS, NULLS = "constants", "nulls"
MEANT = frozenset({CONSTANTS, KEPT, NULLS}) | {f.meant for f in (*FORMS, *AGGREGATES) if f.meant}
"""All names: of forms that have another meaning, and of what is seen only when it fails."""
