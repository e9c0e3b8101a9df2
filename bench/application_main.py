"""Run one engine on one question: `python -m bench.application_main job.json result.json`."""

import sys
from typing import Any

from bench.engine_main import serve
from bench.engines.application import AppJob, AppTimes, run


def run_job(values: dict[str, Any]) -> AppTimes:
    """Run a job on the engine that it names."""
    return run(AppJob.from_json(values))


if __name__ == "__main__":
    serve(*sys.argv[1:], run=run_job)
