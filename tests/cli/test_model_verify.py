"""``modyn-dagster model verify`` on a project: what only the catalog knows, and what only a store has."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

from modyn_dagster.catalog.results.models import ModelUse, mark_models, model_uses
from modyn_dagster.cli import main
from modyn_dagster.model_store import ModelStore
from modyn_dagster.pipeline.context import context_of
from modyn_dagster.pipeline.stages.trigger_stages import model_stage, training_set_stage
from modyn_dagster.settings import Settings
from tests.pipeline.world import World, make_world
from tests.projects.tiny import amount


@pytest.fixture
def world(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A pipeline with two models in a store of its own, and one without any."""
    pipelines = [amount(every=40, model_store={"root": "own", "strategy": "snapshot"}), amount("other")]
    made = make_world(settings, tmp_path / "project", pipelines)
    for name, value in made.settings.environment().items():
        monkeypatch.setenv(name, value)
    made.deliver([0, 1])
    made.live_until_idle("by_amount")
    yield made
    made.close()


def verify(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["model", "verify", *arguments], catch_exceptions=False)


def uses(world: World) -> list[ModelUse]:
    with world.platform.transaction() as conn:
        return model_uses(conn)


def own(world: World) -> ModelStore:
    return world.platform.models_of(world.platform.pipeline("by_amount"))


def test_a_project_that_agrees_with_its_stores_has_nothing_to_mend(world: World) -> None:
    result = verify()
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "2 models read, 0 damaged\n2 models named by triggers, 0 missing; 0 unnamed\n"


def test_a_missing_model_is_named_with_its_trigger_and_comes_back_by_training_again(world: World) -> None:
    first, second = uses(world)
    own(world).delete(first.hash)
    result = verify()
    assert result.exit_code == 1
    assert result.stdout.endswith("2 models named by triggers, 1 missing; 0 unnamed\n")
    assert result.stderr.startswith(f"missing: model {first.hash} of trigger 000001-000000 of by_amount (live); ")
    assert "materialize partition 000001-000000 of by_amount/model again" in result.stderr
    assert second.hash not in result.stderr
    context = training_set_stage(context_of(world.platform, "by_amount", first.partition_key)).context
    assert model_stage(context) is not None
    assert verify().exit_code == 0


def test_a_damaged_model_is_named_with_its_trigger(world: World) -> None:
    first, _ = uses(world)
    path = own(world).info(first.hash).path
    path.write_bytes(path.read_bytes()[:-1])
    result = verify()
    assert result.exit_code == 1
    assert f"damaged: model {first.hash} of trigger {first.partition_key} of by_amount (live); restore the file" in result.stderr
    assert "0 missing" in result.stdout


def test_a_model_that_no_trigger_names_is_no_fault(world: World) -> None:
    store = world.platform.model_store
    base = store.save({"w": torch.zeros(100_000)})
    child = store.save({"w": torch.ones(100_000)}, base=base, strategy="delta")
    result = verify()
    assert (result.exit_code, result.stderr) == (0, "")
    size = f"{store.size(child):,}"
    assert (
        f"unnamed: model {child} in {store.root}, {size} bytes: no trigger names it; `modyn-dagster model delete {child[:12]}`"
        in (result.stdout)
    )
    assert "it stays for 1 models that need it" in result.stdout
    assert result.stdout.endswith("2 models named by triggers, 0 missing; 2 unnamed\n")


def test_a_model_that_retention_removed_is_not_missing(world: World) -> None:
    first, _ = uses(world)
    own(world).delete(first.hash)
    with world.platform.transaction() as conn:
        mark_models(conn, [first.trigger_id], removed=True)
    assert verify().stdout.endswith("1 models named by triggers, 0 missing; 0 unnamed\n")


def test_the_store_of_a_pipeline_without_a_file_is_looked_at_too(world: World) -> None:
    (world.folder / "pipelines" / "by_amount.yaml").unlink()
    assert verify().stdout == "2 models read, 0 damaged\n2 models named by triggers, 0 missing; 0 unnamed\n"


def test_one_model_or_a_named_store_is_read_alone(world: World) -> None:
    root = str(own(world).root)
    shutil.rmtree(world.platform.home / "models", ignore_errors=True)
    first, _ = uses(world)
    assert verify(first.hash[:12], "--store", root).stdout == "1 models read, 0 damaged\n"
    assert verify("--store", root).stdout == "2 models read, 0 damaged\n"
