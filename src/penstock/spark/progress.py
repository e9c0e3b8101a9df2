"""Progress of a query: Spark's own report for each micro-batch, with ours under ``penstock``."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from penstock.driver.driver import EpochResult


class ProgressBook:
    """What each epoch did, to be joined with Spark's progress reports."""

    def __init__(self, limit: int) -> None:
        """Remember at most ``limit`` epochs."""
        self.limit = limit
        self._epochs: OrderedDict[int, dict[str, Any]] = OrderedDict()

    def add(self, result: EpochResult) -> None:
        """Remember an epoch."""
        manifest, reports = result.manifest, result.reports
        files = {ref.name: ref.bytes for refs in manifest.segments.values() for ref in refs}
        seconds: dict[str, float] = {}
        for report in reports:
            for phase, spent in report.seconds.items():
                seconds[phase] = seconds.get(phase, 0.0) + spent
        self._epochs[manifest.epoch] = {
            "epoch": manifest.epoch,
            "rows": dict(result.counts),
            "totals": dict(manifest.totals),
            "files": dict(result.files),
            "fileTotals": manifest.file_totals,
            "watermarks": dict(manifest.watermarks),
            "segments": {name: len(refs) for name, refs in manifest.segments.items()},
            "stateBytes": sum(files.values()),
            "cacheHits": sum(r.cache_hits for r in reports),
            "cacheMisses": sum(r.cache_misses for r in reports),
            "tasks": len(reports),
            "taskSeconds": {phase: round(spent, 6) for phase, spent in seconds.items()},
            "epochSeconds": round(result.seconds, 6),
            "replayed": result.replayed,
            "final": manifest.final,
        }
        while len(self._epochs) > self.limit:
            self._epochs.popitem(last=False)

    def join(self, progress: dict[str, Any]) -> dict[str, Any]:
        """Return one of Spark's reports with ours; rows are ours, since Spark counts splits."""
        ours = self._epochs.get(progress["batchId"])
        if ours is None:
            return progress
        joined = dict(progress) | {"penstock": ours}
        rows = ours["rows"].get("read", 0)
        spent = progress.get("durationMs", {}).get("triggerExecution", 0) / 1000
        joined["numInputRows"] = rows
        joined["processedRowsPerSecond"] = rows / spent if spent else 0.0
        return joined

    def all(self) -> list[dict[str, Any]]:
        """Return what the remembered epochs did, oldest first."""
        return list(self._epochs.values())
