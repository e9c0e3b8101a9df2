"""Run one engine on one job in this process: `python -m bench.engine_main job.json result.json`.

The law this module keeps: it does not outlive its parent. The parent holds the other end of
our standard input; when that closes, the whole process group goes.
"""

import json
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.engines.base import EngineJob, EngineTimes

MODULES = {
    "penstock-files": "bench.engines.penstock",
    "penstock-dataframe": "bench.engines.penstock",
    "native": "bench.engines.native",
    "polars": "bench.engines.polars_batch",
}
"""Where each engine is; imported only in its own process, so that its memory is its own."""


def serve(job_file: str, result_file: str, *, run: Callable[[dict[str, Any]], Any]) -> None:
    """Read the job, run it and write its times; the result appears whole or not at all."""
    threading.Thread(target=_die_with_parent, daemon=True).start()
    times = run(json.loads(Path(job_file).read_text()))
    partial = Path(result_file + ".tmp")
    own_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    partial.write_text(json.dumps({**asdict(times), "own_peak_bytes": own_kb * 1024}))
    partial.replace(result_file)


def run_job(values: dict[str, Any]) -> EngineTimes:
    """Run a job on the engine that it names."""
    job = EngineJob.from_json(values)
    times: EngineTimes = import_module(MODULES[job.engine]).run(job)
    return times


def _die_with_parent() -> None:
    """Kill the group when the parent is gone; it alone holds the pipe's other end."""
    while os.read(0, 1):
        pass
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    serve(*sys.argv[1:], run=run_job)
