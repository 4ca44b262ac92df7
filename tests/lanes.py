"""Tests that go to one worker together: those of a file, and those of several files that want the same processes.

pytest-xdist's own groups are marks on tests, and get lost on the way to where tests are handed out: its release 3.8 writes them
where pytest 9.2 no longer looks.
"""

from typing import Final

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]  # xdist has no types

#: Files of ``tests`` by lane. The first lanes take minutes, most of them waiting for programs that do the work.
LANES: Final = {
    "daemons": ("integration/backfill", "integration/live_equals_replay"),
    "daemons that are operated or die": ("integration/operated", "integration/drift_killed", "integration/ui"),
    # They share a process with everything imported, and what is killed again and again is made once.
    "forks": (
        "integration/bad_pipelines",
        "integration/killed_anywhere",
        "integration/killed_ingestion",
        "integration/postgres_killed",
    ),
    # They share a process with everything imported.
    "faults": ("faults/histories", "faults/invariants", "faults/power_cut", "faults/surroundings"),
    # Both MLflow and its tables take seconds, in every worker that needs them.
    "MLflow": (
        "reporting/champion_check",
        "reporting/comparison",
        "reporting/mlflow_resource",
        "reporting/registered_by_hand",
        "reporting/registered_models",
        "reporting/report_catalog",
        "reporting/summary",
        "reporting/tracked_comparison",
        "reporting/tracked_content",
        "reporting/tracked_scores",
        "reporting/tracking",
        "reporting/tracking_client",
        "reporting/tracking_files",
        "reporting/tracking_server",
    ),
}
LANE_OF: Final = {f"tests/{name.replace('/', '/test_')}.py": lane for lane, names in LANES.items() for name in names}


class Lanes(LoadScopeScheduling):  # type: ignore[misc]  # nor has its class
    """A worker is given a lane or a file at a time: lanes first, then the files with the most tests."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return LANE_OF.get(file, file)

    def _assign_work_unit(self, node: object) -> None:
        first = next((lane for lane in LANES if lane in self.workqueue), None)
        if first is not None:
            self.workqueue.move_to_end(first, last=False)
        super()._assign_work_unit(node)
