"""Nodes that die before and after requests to the store: the next start ends as if nothing had happened."""

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import RunningServer
from tests.integration.harness.deployment import Deployment, deployed
from tests.pipeline.integrity.homes import findings
from tests.pipeline.world import World
from tests.projects.tiny import batch_text, drop, timed

pytestmark = pytest.mark.soak("distributed")

#: Counts requests that change or read the store, and dies before (odd) or after (even) one of them.
_VICTIM = """
import os, signal, sys
from fsspec.implementations.local import LocalFileSystem as Store
at, n = int(sys.argv.pop(1)), 0
def watched(method):
    def call(*args, **kwargs):
        global n
        n += 1
        if 2 * n - 1 == at:
            os.kill(os.getpid(), signal.SIGKILL)
        last = 2 * n == at
        result = method(*args, **kwargs)
        if last:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    return call
for name in ("put_file", "mv", "cat_file", "rm_file", "cp_file"):
    setattr(Store, name, watched(getattr(Store, name)))
from modyn_dagster.cli import main
main()
"""


def killed(node: Deployment, at: int, *arguments: str) -> bool:
    """Run a command that dies at a request; False when it ended before it came so far."""
    command = [sys.executable, "-c", _VICTIM, str(at), *arguments]
    result = subprocess.run(command, cwd=node.project, env=node.environment, capture_output=True, text=True, check=False)
    assert result.returncode in (0, -signal.SIGKILL), result.stderr
    return result.returncode != 0


@pytest.mark.parametrize("first", [1, 2, 3, 4])
def test_an_import_and_a_replay_that_die_at_a_request_end_as_undisturbed_ones(
    postgres_server: RunningServer, tmp_path: Path, first: int
) -> None:
    with deployed(postgres_server, tmp_path, [timed(every="2d")]) as deployment:
        settings = replace(deployment.settings, files=f"file://{tmp_path}/store", cache_size=10**9)
        for day in range(4):
            drop(deployment.project, f"day_{day:02d}", batch_text(day))
        importer = Deployment(replace(settings, home=tmp_path / "importer"))
        killed(importer, 2 * first, "dataset", "import", "tiny")
        importer.command("dataset", "import", "tiny")
        ann = World(deployment.project, replace(settings, home=tmp_path / "ann"))
        ann.replay("by_time", name="undisturbed")
        expected = ann.outcome(ann.run_named("by_time", "undisturbed"))
        for at in range(first, 80, 9):
            # A node of its own, so that it fetches what it reads.
            node, name = Deployment(replace(settings, home=tmp_path / f"node{at}")), f"killed at {at}"
            if not killed(node, at, "pipeline", "replay", "by_time", "--name", name):
                break
            node.command("pipeline", "replay", "by_time", "--name", name)
            assert ann.outcome(ann.run_named("by_time", name)) == expected
        assert at > 18
        assert findings(ann) == []
        ann.close()
