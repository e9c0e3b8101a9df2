"""Run one engine of the state benchmark: `python -m bench.state_main job.json result.json`."""

import sys

from bench.engine_main import serve
from bench.engines.state import StateJob, run

if __name__ == "__main__":
    serve(*sys.argv[1:], run=lambda values: run(StateJob.from_json(values)))
