"""After a power cut at any moment no row names a lost file, and the next start ends as if there had been none."""

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from modyn_dagster.keys import key_of
from tests.conftest import RunningServer
from tests.faults import injector, power_cut
from tests.faults.installation import Installation, installed
from tests.faults.plan import CHANGES, Fault, Plan
from tests.faults.worker import Worker
from tests.projects.tiny import amount, timed

pytestmark = pytest.mark.process
SOAK: Final = pytest.mark.soak("faults")

_CODE = """
import os, sys
from pathlib import Path
from tests.faults import injector, power_cut
root, shadow = Path(sys.argv[1]), Path(sys.argv[2])
def sync(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
(root / "kept").write_text("before")
(root / "removed").write_text("before")
power_cut.remember_all(root, shadow)
(root / "kept").write_text("after")                                  # neither content nor name
(root / "removed").unlink()
(root / "synced").write_text("synced"); sync(root / "synced")        # content without its name
(root / "folder").mkdir(); (root / "folder" / "a").write_text("a")
sync(root / "folder" / "a"); sync(root / "folder")                   # all but the folder's own name
if len(sys.argv) > 3:
    sync(root)
    (root / "empty").write_text("late"); (root / "empty").rename(root / "later")
"""


_OURS = """
import os, sys
from pathlib import Path
from modyn_dagster.durability.names import durable_link, settle
from modyn_dagster.storage import StagedFile, atomic_write
from tests.faults import power_cut
root, shadow = Path(sys.argv[1]), Path(sys.argv[2])
power_cut.remember_all(root, shadow)
with atomic_write(root / "a" / "b" / "written") as file:
    file.write(b"content")
staged = StagedFile(root / "c" / "d" / "staged")
staged.write(b"content")
staged.finish()
staged.publish()
durable_link(root / "c" / "d" / "staged", root / "e" / "linked")
# As a process does that is killed before the sync of the folder, and its successor, which finds the file.
os.mkdir(root / "f")
(root / "f" / "found").write_bytes(b"content")
os.fsync(os.open(root / "f" / "found", os.O_RDONLY))
settle(root / "f")
"""


def run_below(library: Path, root: Path, code: str, *arguments: str) -> Path:
    """Run code on an empty root, with a shadow of what is durable; returns the shadow."""
    shadow = root.parent / "shadow"
    root.mkdir()
    shadow.mkdir()
    plan = Plan(root.parent / "plan", root, shadow=shadow)
    command = [sys.executable, "-c", code, str(root), str(shadow), *arguments]
    subprocess.run(command, env={**os.environ, **injector.environment(library, plan)}, check=True)
    return shadow


def test_files_of_ours_survive_with_their_names_and_folders(library: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    assert power_cut.cut(root, run_below(library, root, _OURS)) == []
    files = [path for path in root.rglob("*") if path.is_file()]
    assert sorted(path.name for path in files) == ["found", "linked", "staged", "written"]
    assert {path.read_bytes() for path in files} == {b"content"}


@pytest.mark.parametrize(("is_synced", "names"), [(False, ["kept", "removed"]), (True, ["folder", "folder/a", "kept", "synced"])])
def test_a_power_cut_forgets_what_was_not_synced(library: Path, tmp_path: Path, is_synced: bool, names: list[str]) -> None:
    root = tmp_path / "root"
    shadow = run_below(library, root, _CODE, *(["synced"] if is_synced else []))
    assert power_cut.cut(root, shadow)
    assert sorted(str(path.relative_to(root)) for path in root.rglob("*")) == names
    assert (root / "kept").read_text() == "before"
    if is_synced:
        assert [(root / name).read_text() for name in ("synced", "folder/a")] == ["synced", "a"]


#: Pipelines whose replay and production are cut; a kill costs an attempt.
PIPELINES: Final = (amount("by_amount", every=60, max_attempts=99), timed("by_time", every="1d", max_attempts=99))


@pytest.fixture(scope="module")
def installation(
    postgres_server: RunningServer, worker: Worker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    with installed(postgres_server, worker, tmp_path_factory.mktemp("power") / "first", PIPELINES) as installation:
        for day in range(3):
            installation.deliver(day)
        yield installation


def cut_and_start_again(first: Installation, task: str, *arguments: Any, seed: int, cuts: int) -> None:
    """Cut the power at random changes of files in a task, each cut after the start before was cut or ended."""
    rng = random.Random(seed)  # noqa: S311 - a seed to be printed, no secret
    with first.copied(f"whole_{task}") as whole, first.copied(f"cut_{task}") as suffering:
        count = Fault(CHANGES, "count")
        plan = whole.plan([count])
        assert whole.tasks.run(whole.settings, task, *arguments, plan=plan).is_done
        n_changes = plan.tallies()[0].seen
        suffering.log.append(f"seed {seed}, {n_changes} changes")
        suffering.keep_shadow()
        for _ in range(cuts):
            faults = [Fault(CHANGES, "kill", after=rng.randrange(n_changes))]
            if rng.random() < 0.5:
                # A process killed before, whose successor relies on what it left.
                suffering.run(task, *arguments, faults=[Fault(CHANGES, "kill", after=rng.randrange(n_changes))])
            suffering.run(task, *arguments, faults=faults)
            suffering.cut_power()
            suffering.check()
        suffering.must(task, *arguments)
        suffering.cut_power()
        for installation in (suffering, whole):
            installation.must("retain")
        suffering.check_settled()
        assert suffering.facts() == whole.facts(), suffering.story


@SOAK
@pytest.mark.parametrize("seed", range(6))
def test_an_import_whose_power_is_cut_ends_as_if_undisturbed(installation: Installation, seed: int) -> None:
    cut_and_start_again(installation, "ingest", seed=seed, cuts=3)


@pytest.fixture(scope="module")
def ingested(installation: Installation) -> Iterator[Installation]:
    with installation.copied("ingested") as ingested:
        ingested.must("ingest")
        yield ingested


@SOAK
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("task", "pipeline"), [("replay", "by_amount"), ("live", "by_time")])
def test_a_pipeline_whose_power_is_cut_ends_as_if_undisturbed(
    ingested: Installation, task: str, pipeline: str, seed: int
) -> None:
    cut_and_start_again(ingested, task, pipeline, seed=seed, cuts=3)


@pytest.mark.parametrize("seed", range(4))
@SOAK
def test_a_deletion_and_a_removal_whose_power_is_cut_leave_nothing(ingested: Installation, seed: int) -> None:
    with ingested.copied(f"trained_{seed}") as trained:
        trained.must("replay", "by_amount")
        cut_and_start_again(trained, "delete", [key_of(0, 3), key_of(1, 5), key_of(1, 6)], seed=seed, cuts=2)
        cut_and_start_again(trained, "remove", "by_amount", seed=seed, cuts=2)


#: Folders whose sync comes after the rename of a file that a row is about to name.
@pytest.mark.parametrize(
    "folder",
    [
        pytest.param("models/??", id="models", marks=SOAK),
        pytest.param("training_sets/??????", id="training_sets", marks=SOAK),
        pytest.param("predictions/??????/??????", id="predictions", marks=SOAK),
    ],
)
def test_a_name_that_a_killed_process_did_not_sync_is_synced_before_a_row_names_it(ingested: Installation, folder: str) -> None:
    name = folder.partition("/")[0]
    with ingested.copied(f"killed_{name}") as suffering, ingested.copied(f"whole_{name}") as whole:
        suffering.keep_shadow()
        assert suffering.run("replay", "by_amount", faults=[Fault(["fsync"], "kill", pattern=folder, after=1)]).exit_code == -9
        suffering.must("replay", "by_amount")
        suffering.cut_power()
        suffering.check()
        whole.must("replay", "by_amount")
        assert suffering.facts() == whole.facts(), suffering.story
