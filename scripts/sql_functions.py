"""Write the table of functions into docs/sql.md."""

from __future__ import annotations

from pathlib import Path

from penstock.query.functions.table import put_table

if __name__ == "__main__":
    document = Path(__file__).parents[1] / "docs/sql.md"
    document.write_text(put_table(document.read_text()))
