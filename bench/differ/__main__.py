"""``python -m bench.differ --statements 20000 --seed 1 [--json]``."""

from __future__ import annotations

import argparse
import sys

from bench.differ.compare import Comparison
from bench.differ.generator import statements
from bench.differ.report import Report
from bench.differ.table import rows


def main() -> int:
    """Run it and print what was found; the status is 1 if anything differs without a name."""
    parser = argparse.ArgumentParser(prog="python -m bench.differ", description=__doc__)
    parser.add_argument("--statements", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with Comparison(rows(seed=given.seed)) as comparison:
        report = Report.of(comparison.run(statements(given.statements, given.seed)))
    print(report.to_json() if given.json else report.to_text())
    return 1 if report.differing else 0


if __name__ == "__main__":
    sys.exit(main())
