"""All triggers with something left to evaluate, from as many scans as it takes."""

from collections.abc import Sequence

from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.catalog.triggers import TriggerRow
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.pipeline.stages.evaluation.pending_evaluations import PendingScan, scan_pending


def triggers_to_evaluate(platform: Platform, run: RunRow) -> Sequence[TriggerRow]:
    """Scan a run to its end; pending triggers in order."""
    due: list[TriggerRow] = []
    scan = PendingScan([], 0, complete=False)
    while not scan.complete:
        scan = scan_pending(platform, run, scan.looked)
        due = [*scan.due, *due]
    return due
