"""``modyn-dagster pipeline remove`` and ``dataset remove``: what goes, what stays, and what is refused."""

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import pytest
import sqlalchemy as sa
from click.testing import CliRunner, Result

from modyn_dagster.assets.samples import announce_batches
from modyn_dagster.catalog.database.mapping import metadata
from modyn_dagster.catalog.database.urls import child_environment
from modyn_dagster.catalog.registration.datasets import ensure_dataset
from modyn_dagster.catalog.removal.journal import begin_removal, unfinished_removals
from modyn_dagster.catalog.results.models import ModelUse, model, model_uses
from modyn_dagster.catalog.runs import pipeline_run
from modyn_dagster.cli import main
from modyn_dagster.errors import CatalogError
from modyn_dagster.pipeline.replay.run import run_lock
from modyn_dagster.settings import Settings
from tests.conftest import TEMPLATE, RunningServer
from tests.model_store.states import assert_exact
from tests.pipeline.world import World, make_world
from tests.projects.tiny import DATASET, amount, timed

RUNS = ("training_sets", "predictions", "checkpoints", "optimizers")


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def trained(settings: Settings, folder: Path) -> Iterator[World]:
    """Two pipelines that have trained, one of them live, on a dataset that Dagster shows."""
    made = make_world(settings, folder, [amount(every=30), timed(every="1d")], split={"train": 0.8, "evaluate": 0.2})
    (folder / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    made.deliver([0, 1])
    made.live_until_idle("by_amount")
    made.replay("by_time")
    with environment(made.settings.environment() | child_environment(made.settings) | {"DAGSTER_HOME": str(folder)}):
        with dg.DagsterInstance.get() as instance:
            announce_batches(instance, made.platform, DATASET)
            keys = [use.partition_key for use in uses(made) if use.pipeline == "by_amount"]
            instance.add_dynamic_partitions("triggers/by_amount", keys)
            instance.report_runless_asset_event(dg.AssetMaterialization(["by_amount", "model"], partition=keys[0]))
        yield made
    made.close()


@pytest.fixture
def world(settings: Settings, tmp_path: Path) -> Iterator[World]:
    with trained(settings, tmp_path / "project") as made:
        yield made


@pytest.fixture(scope="module")
def standing(postgres_server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A world for tests that remove nothing."""
    folder = tmp_path_factory.mktemp("standing")
    settings = postgres_server.settings(folder, folder / "home", f"t{secrets.token_hex(4)}_")
    database = f"{settings.database_prefix}modyn"
    postgres_server.create_database(database, TEMPLATE)
    with trained(settings, folder / "project") as made:
        yield made
    postgres_server.drop_database(database)


def run(*arguments: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(main, arguments, input=answer, catch_exceptions=False)


def refused(*arguments: str) -> str:
    result = run(*arguments)
    assert result.exit_code == 1, result.stdout
    return result.stderr


def uses(world: World) -> list[ModelUse]:
    with world.platform.transaction() as conn:
        return model_uses(conn)


def hashes(world: World, pipeline: str) -> list[str]:
    return [use.hash for use in uses(world) if use.pipeline == pipeline]


def rows(world: World) -> dict[str, int]:
    """Number of rows of every table that has any."""
    count = sa.select(sa.func.count())
    with world.platform.transaction() as conn:
        counts = {table.name: conn.execute(count.select_from(table)).scalar_one() for table in metadata.sorted_tables}
    return {name: n for name, n in counts.items() if n}


def files(world: World, *folders: str) -> list[str]:
    home = world.platform.home
    return sorted(str(path.relative_to(home)) for folder in folders for path in (home / folder).rglob("*") if path.is_file())


@pytest.mark.soak("screens")
def test_a_pipeline_goes_with_its_rows_files_models_and_partitions_and_can_begin_anew(world: World) -> None:
    assert run("pipeline", "stop", "by_amount").exit_code == 0
    other = hashes(world, "by_time")
    kept = [path for path in files(world, *RUNS) if "/000002/" in path]
    done = run("pipeline", "remove", "by_amount", "--yes")
    assert done.exit_code == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "pipeline by_amount: 1 runs, 2 triggers, 2 models"
    assert "  training_sets/000001" in lines
    assert "pipeline by_amount is removed" in lines
    assert lines[-1] == "stays: the file of by_amount in pipelines/; delete it, or its sensor and replays begin anew"
    assert any(line.startswith("stays: experiment by_amount in MLflow") for line in lines)
    assert [use.hash for use in uses(world)] == other
    assert world.platform.model_store.list() == sorted(other)
    assert files(world, *RUNS) == kept
    assert run("model", "verify").exit_code == 0
    with dg.DagsterInstance.get() as instance:
        assert instance.get_dynamic_partitions("triggers/by_amount") == []
        assert instance.get_materialized_partitions(dg.AssetKey(["by_amount", "model"])) == set()
    assert rows(world)["pipeline"] == 1
    assert "removal" not in rows(world)
    world.live_until_idle("by_amount")
    assert len(hashes(world, "by_amount")) == 2


@pytest.mark.soak("screens")
def test_a_dataset_goes_once_nothing_depends_on_it_and_can_begin_anew(world: World) -> None:
    message = "by_amount, by_time ran on dataset tiny; remove first: `modyn-dagster pipeline remove by_amount`"
    assert message in refused("dataset", "remove", DATASET, "--yes")
    # Without its file no sensor continues a live run.
    (world.folder / "pipelines" / "by_amount.yaml").unlink()
    for name in ("by_amount", "by_time"):
        assert run("pipeline", "remove", name, "--yes").exit_code == 0
    assert run("dataset", "delete", DATASET, "--keys", "3", "--yes").exit_code == 0
    done = run("dataset", "remove", DATASET, "--yes")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines()[0] == "dataset tiny: 2 batches, 80 samples"
    assert "stays: its source files, which are not ours" in done.stdout
    assert rows(world) == {}
    assert files(world, "batches", "shards", *RUNS) == []
    assert world.platform.model_store.list() == []
    with world.platform.transaction() as conn:
        assert conn.scalar(sa.select(sa.func.to_regclass("sample_1"))) is None
    with dg.DagsterInstance.get() as instance:
        assert instance.get_dynamic_partitions(f"batches/{DATASET}") == []
        assert instance.get_materialized_partitions(dg.AssetKey([DATASET, "samples"])) == set()
    assert sorted(path.name for path in (world.folder / "data").iterdir()) == ["day_00.csv", "day_01.csv"]
    world.deliver([2])
    assert world.keys() == ["day_00", "day_01", "day_02"]


@pytest.mark.soak("screens")
def test_models_that_others_name_stay_and_those_that_others_need_are_refused_or_stored_anew(world: World) -> None:
    assert run("pipeline", "stop", "by_amount").exit_code == 0
    first, second = hashes(world, "by_amount")
    with world.platform.transaction() as conn:
        conn.execute(sa.update(model).where(model.c.hash.not_in([first, second])).values(hash=first))
    store = world.platform.model_store
    state = store.load(second)
    changed = next(iter(state))
    mine = store.save(state | {changed: state[changed] + 1}, base=second, strategy="changed_layers")
    assert store.info(mine).needs == (second,)
    before = rows(world)
    assert f"model {second} is needed by 1 others ({mine}); add --rebase" in refused("pipeline", "remove", "by_amount", "--yes")
    assert rows(world) == before
    done = run("pipeline", "remove", "by_amount", "--rebase", "--yes")
    assert done.stdout.startswith("pipeline by_amount: 1 runs, 2 triggers, 1 models (1 more stay: other pipelines name them, ")
    assert {first, mine} <= set(store.list())
    assert second not in store.list()
    assert_exact(store.load(mine), state | {changed: state[changed] + 1})


@pytest.mark.soak("screens")
def test_a_dry_run_shows_what_goes_and_a_question_is_asked(standing: World) -> None:
    before = rows(standing), files(standing, *RUNS, "models")
    shown = run("pipeline", "remove", "by_time", "--dry-run")
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert shown.stdout.startswith("pipeline by_time: 1 runs, 1 triggers, 1 models\n  training_sets/000002\n")
    assert "is removed" not in shown.stdout
    assert "stays" not in shown.stdout
    asked = run("pipeline", "remove", "by_time", answer="n\n")
    assert asked.exit_code == 1
    assert "Remove it for good? [y/N]" in asked.stdout
    assert (rows(standing), files(standing, *RUNS, "models")) == before


def test_what_is_live_or_running_is_refused(standing: World) -> None:
    remedy = "stop it first: `modyn-dagster pipeline stop by_amount` (`--now`: at once)"
    assert refused("pipeline", "remove", "by_amount", "--yes") == f"error: live run 1 of by_amount is active; {remedy}\n"
    with run_lock(standing.platform.engine, standing.run("by_time", "replay")):
        error = refused("pipeline", "remove", "by_time", "--yes")
    assert "a process works on replay run 2 of by_time; wait for it, or cancel its run in Dagster" in error

    @dg.job(name="evaluate__by_time")
    def evaluation() -> None: ...

    with dg.DagsterInstance.get() as instance:
        going = instance.create_run_for_job(evaluation, status=dg.DagsterRunStatus.STARTED)
        error = refused("pipeline", "remove", "by_time", "--yes")
        instance.report_run_canceled(going)
    assert f"Dagster run {going.run_id} works on by_time; wait for it, or cancel it in Dagster" in error
    assert "no pipeline with runs 'nobody'; known: by_amount, by_time" in refused("pipeline", "remove", "nobody", "--yes")
    assert "no dataset 'nobody'; known: tiny" in refused("dataset", "remove", "nobody", "--yes")


def test_a_pipeline_whose_triggers_or_costs_another_one_repeats_is_refused(standing: World) -> None:
    options = sa.update(pipeline_run).where(pipeline_run.c.mode == "live")
    with standing.platform.transaction() as conn:
        conn.execute(options.values(options={"costs_from": 2}))
    error = refused("pipeline", "remove", "by_time", "--yes")
    with standing.platform.transaction() as conn:
        conn.execute(options.values(options={}))
    assert "live run 1 of by_amount repeats triggers or costs of a run of by_time" in error


def test_a_dataset_whose_batch_is_being_ingested_is_refused(standing: World) -> None:
    spec = standing.platform.dataset(DATASET).model_copy(update={"name": "idle"})
    with standing.platform.transaction() as conn:
        ensure_dataset(conn, spec)
    with standing.platform.transaction() as conn:
        conn.exec_driver_sql("select 1 from dataset where name = 'idle' for no key update")
        assert "a batch is registered or ingested; wait for it" in refused("dataset", "remove", "idle", "--yes")
    assert run("dataset", "remove", "idle", "--yes").exit_code == 0


def test_a_dataset_does_not_begin_anew_while_its_removal_is_unfinished(standing: World) -> None:
    with standing.platform.transaction() as conn:
        begin_removal(conn, "dataset", "another", {"summary": "", "paths": []})
    spec = standing.platform.dataset(DATASET).model_copy(update={"name": "another"})
    match = "complete it first: `modyn-dagster dataset remove another`"
    with pytest.raises(CatalogError, match=match), standing.platform.transaction() as conn:
        ensure_dataset(conn, spec)
    assert "an earlier removal was interrupted" in run("dataset", "remove", "another").stdout
    with standing.platform.transaction() as conn:
        assert unfinished_removals(conn, "dataset", "another") == []
