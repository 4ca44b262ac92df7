"""Removal of a pipeline and its dataset, killed before or after any commit or removed file, is completed by the next start."""

import multiprocessing
import os
import secrets
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import dagster as dg
import pytest
import sqlalchemy as sa
from click.testing import CliRunner

from modyn_dagster.assets.samples import announce_batches
from modyn_dagster.catalog.database.engine import open_engine, transaction
from modyn_dagster.catalog.database.mapping import metadata
from modyn_dagster.catalog.database.urls import child_environment
from modyn_dagster.cli import main
from modyn_dagster.model_store import ModelStore
from modyn_dagster.settings import Settings
from tests.conftest import TEMPLATE, RunningServer
from tests.pipeline.world import make_world
from tests.projects.tiny import DATASET, amount

PIPELINE: Final = "by_amount"
COMMANDS: Final = (["pipeline", "remove", PIPELINE, "--yes"], ["dataset", "remove", DATASET, "--yes"])
#: Steps of `make test`, spread over all; `make soak` has every step.
FEW: Final = 3
#: The matrix is cut into this many tests.
CHUNKS: Final = 6


@dataclass(frozen=True)
class Installation:
    """A project whose pipeline was stopped after two trainings, with Dagster's files beside the home folder."""

    server: RunningServer
    settings: Settings
    dagster: Path

    @contextmanager
    def copied(self) -> Iterator["Installation"]:
        folder = self.settings.project.parent / secrets.token_hex(4)
        shutil.copytree(self.settings.home, folder / "home")
        shutil.copytree(self.dagster, folder / "dagster")
        prefix = f"t{secrets.token_hex(4)}_"
        self.server.create_database(f"{prefix}modyn", f"{self.settings.database_prefix}modyn")
        yield replace(
            self, settings=replace(self.settings, home=folder / "home", database_prefix=prefix), dagster=folder / "dagster"
        )
        self.server.drop_database(f"{prefix}modyn")
        shutil.rmtree(folder)

    @property
    def environment(self) -> Mapping[str, str]:
        return self.settings.environment() | child_environment(self.settings) | {"DAGSTER_HOME": str(self.dagster)}

    def remove(self, step: int = 0) -> tuple[int | None, int]:
        """Remove pipeline and dataset in a process that is killed at a step, 0: never; its exit code, and the steps it passed."""
        passed = multiprocessing.get_context("fork").Value("i", 0)
        process = multiprocessing.get_context("fork").Process(target=_remove_until, args=(step, passed, self.environment))
        process.start()
        process.join()
        return process.exitcode, int(passed.value)

    def ending(self) -> dict[str, Any]:
        """Everything that is left."""
        home, engine = self.settings.home, open_engine(self.settings)
        with transaction(engine) as conn:
            counts = {
                table.name: conn.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
                for table in metadata.sorted_tables
            }
            partition = conn.scalar(sa.select(sa.func.to_regclass("sample_1")))
        engine.dispose()
        with dg.DagsterInstance.from_config(str(self.dagster)) as instance:
            partitions = [instance.get_dynamic_partitions(name) for name in (f"triggers/{PIPELINE}", f"batches/{DATASET}")]
            events = [instance.get_materialized_partitions(dg.AssetKey([*key])) for key in SHOWN]
        return {
            "rows": {name: n for name, n in counts.items() if n},
            "partition": partition,
            "files": sorted(str(path.relative_to(home)) for path in home.rglob("*") if _is_ours(path)),
            "models": ModelStore(home / "models").list(),
            "dagster": [*partitions, *events],
        }


def _is_ours(path: Path) -> bool:
    """True for a file, but those of the model store, whose documents stay."""
    return path.is_file() and "models" not in path.parts


SHOWN: Final = ((PIPELINE, "model"), (DATASET, "samples"))


def _remove_until(step: int, passed: Any, environment: Mapping[str, str]) -> None:
    os.environ.update(environment)

    def reach(*_: object) -> None:
        passed.value += 1
        if passed.value == step:
            os.kill(os.getpid(), signal.SIGKILL)

    sa.event.listen(sa.Engine, "commit", reach)
    for name in ("unlink", "rmdir"):
        setattr(os, name, _around(getattr(os, name), reach))
    for command in COMMANDS:
        result = CliRunner().invoke(main, command, catch_exceptions=False)
        gone = result.stderr.startswith(("error: no pipeline with runs", "error: no dataset"))
        if result.exit_code != 0 and not gone:
            os._exit(1)
    os._exit(0)


def _around(remove: Any, reach: Any) -> Any:
    def removed(*arguments: Any, **options: Any) -> None:
        reach()
        remove(*arguments, **options)
        reach()

    return removed


@dataclass(frozen=True)
class Undisturbed:
    """An installation, the number of steps that removing everything takes, and what is left then."""

    installation: Installation
    steps: int
    ending: dict[str, Any]


@pytest.fixture(scope="module")
def undisturbed(postgres_server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Undisturbed]:
    import mlflow  # noqa: F401 - once, for all processes that are forked

    folder = tmp_path_factory.mktemp("removal")
    settings = postgres_server.settings(folder, folder / "home", f"t{secrets.token_hex(4)}_")
    database = f"{settings.database_prefix}modyn"
    postgres_server.create_database(database, TEMPLATE)
    world = make_world(settings, folder / "project", [amount(every=40)])
    (folder / "dagster").mkdir()
    (folder / "dagster" / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    world.deliver([0, 1])
    world.live_until_idle(PIPELINE)
    with world.platform.transaction() as conn:
        conn.exec_driver_sql("update pipeline_run set state = 'stopped'")
    with dg.DagsterInstance.from_config(str(folder / "dagster")) as instance:
        announce_batches(instance, world.platform, DATASET)
        instance.add_dynamic_partitions(f"triggers/{PIPELINE}", ["000001-000000", "000001-000001"])
        instance.report_runless_asset_event(dg.AssetMaterialization([PIPELINE, "model"], partition="000001-000000"))
    world.close()
    installation = Installation(postgres_server, world.settings, folder / "dagster")
    with installation.copied() as copy:
        code, steps = copy.remove()
        assert code == 0
        yield Undisturbed(installation, steps, copy.ending())
    postgres_server.drop_database(database)


def kill_and_start_again(undisturbed: Undisturbed, steps: Sequence[int]) -> None:
    for step in steps:
        with undisturbed.installation.copied() as copy:
            assert copy.remove(step)[0] == -signal.SIGKILL
            assert copy.remove()[0] == 0, f"step {step}"
            assert copy.ending() == undisturbed.ending, f"step {step}"


def test_a_removal_leaves_nothing(undisturbed: Undisturbed) -> None:
    expected: dict[str, Any] = {"rows": {}, "partition": None, "files": [], "models": [], "dagster": [[], [], set(), set()]}
    assert undisturbed.ending == expected
    # Two files of each of two triggers, two indexes and their folders, two models, and the commits of both commands.
    assert undisturbed.steps > 30


@pytest.mark.soak("kills-store")
def test_a_removal_killed_at_a_few_steps_is_completed_by_the_next_start(undisturbed: Undisturbed) -> None:
    kill_and_start_again(undisturbed, [1 + n * (undisturbed.steps - 1) // (FEW - 1) for n in range(FEW)])


@pytest.mark.soak("kills-store")
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_removal_killed_at_any_step_is_completed_by_the_next_start(undisturbed: Undisturbed, chunk: int) -> None:
    kill_and_start_again(undisturbed, range(1 + chunk, undisturbed.steps + 1, CHUNKS))
