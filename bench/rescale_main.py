"""Run one engine of the rescale benchmark: `python -m bench.rescale_main job.json result.json`."""

import sys

from bench.engine_main import serve
from bench.engines.rescale import RescaleJob, run

if __name__ == "__main__":
    serve(*sys.argv[1:], run=lambda values: run(RescaleJob.from_json(values)))
