"""Tests that go to one worker together: those of a file, and those of several files that want the same processes.

pytest-xdist's own groups are marks on tests, and get lost on the way to where tests are handed out: its release 3.8 writes them
where pytest 9.2 no longer looks.
"""

from typing import Final

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]  # xdist has no types

#: Files of ``tests/integration`` by lane. A lane takes minutes, most of them waiting for programs that do the work.
LANES: Final = {
    "daemons": ("backfill", "live_equals_replay"),
    "daemons that are operated or die": ("operated", "drift_killed", "ui"),
    # They share a process with everything imported, and what is killed again and again is made once.
    "forks": ("bad_pipelines", "killed_anywhere", "killed_ingestion", "postgres_killed"),
}
LANE_OF: Final = {f"tests/integration/test_{name}.py": lane for lane, names in LANES.items() for name in names}


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
