"""Run one engine on Nexmark's queries: `python -m bench.nexmark_main job.json result.json`."""

import sys
from typing import Any

from bench.engine_main import serve
from bench.engines.nexmark import MarketJob, MarketTimes, run


def run_job(values: dict[str, Any]) -> MarketTimes:
    """Run a job on the engine that it names."""
    return run(MarketJob.from_json(values))


if __name__ == "__main__":
    serve(*sys.argv[1:], run=run_job)
