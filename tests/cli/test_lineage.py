"""``dataset lineage`` and ``model lineage``: from a sample to its models, and back."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.cli import main
from modyn_dagster.settings import Settings
from tests.pipeline.deleting import keys_of
from tests.pipeline.world import World, make_world
from tests.projects.tiny import DATASET, amount

DAY = 1 << 32


@pytest.fixture
def world(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    chained = amount(every=40)
    chained["training"] |= {"use_previous_model": True}
    made = make_world(settings, tmp_path / "project", [chained], split={"train": 0.8, "evaluate": 0.2})
    for name, value in made.settings.environment().items():
        monkeypatch.setenv(name, value)
    made.deliver(range(4))
    made.live_until_idle("by_amount")
    yield made
    made.close()


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments), catch_exceptions=False)


def held(world: World) -> dict[str, list[int]]:
    found = {}
    for trigger in world.triggers(world.run("by_amount", "live").id, "trained"):
        found[trigger.partition_key] = keys_of(world, trigger).tolist()
    return found


def test_a_sample_leads_to_its_sets_models_live_times_and_predictions_and_each_model_back_to_it(world: World) -> None:
    sets = held(world)
    with world.platform.transaction() as conn:
        models = dict(zip(sets, list_models(conn, world.run("by_amount", "live").id), strict=True))
    second = list(sets)[1]
    key = sets[second][0]
    found = json.loads(run("dataset", "lineage", DATASET, str(key), "--json").stdout)
    assert [(use["trigger"], use["model"]) for use in found["uses"]] == [
        (trigger, models[trigger].hash) for trigger in list(sets)[1:]
    ]
    assert found["uses"][0]["sources"] == ["training_set"]
    assert all(use["sources"] == ["previous_model"] for use in found["uses"][1:])
    ends = [models[trigger].created_at.isoformat() for trigger in list(sets)[1:]]
    assert [(use["live"]["from"], use["live"]["to"]) for use in found["uses"]] == list(zip(ends, [*ends[1:], None], strict=True))
    assert found["predictions"]
    assert all((world.platform.home / file["path"]).exists() for file in found["predictions"])
    shown = run("dataset", "lineage", DATASET, str(key)).stdout
    assert f"predictions: {found['predictions'][0]['path']}" in shown
    last = models[list(sets)[-1]].hash
    back = json.loads(run("model", "lineage", last[:12], "--json").stdout)
    assert [each["model"] for each in back] == [models[trigger].hash for trigger in reversed(sets)]
    for each in back:
        keys = sets[each["trigger"]]
        assert each["batches"] == {f"day_{day:02d}": n for day in range(4) if (n := sum(key >> 32 == day for key in keys))}


@pytest.mark.soak("screens")
def test_what_has_no_lineage_is_told_in_one_sentence(world: World) -> None:
    sets = held(world)
    unused = next(key for key in range(40) if all(key not in keys for keys in sets.values()))
    assert json.loads(run("dataset", "lineage", DATASET, str(unused), "--json").stdout)["uses"] == []
    for arguments, message in (
        (("dataset", "lineage", DATASET, "40"), "tiny: no sample with key 40 (batch 0, position 40)"),
        (("dataset", "lineage", "other", "1"), "no dataset 'other'; known: tiny"),
        (("model", "lineage", "zz"), "no model of a trigger 'zz'"),
    ):
        result = run(*arguments)
        assert (result.exit_code, message in result.stderr) == (1, True), result.stderr


@pytest.mark.soak("screens")
def test_a_set_that_retention_removed_is_unknown(world: World) -> None:
    sets = held(world)
    first = next(iter(sets))
    run_id, ordinal = first.split("-")
    (world.platform.home / "training_sets" / run_id / f"{ordinal}.arrow").unlink()
    [use, *_] = json.loads(run("dataset", "lineage", DATASET, str(sets[first][0]), "--json").stdout)["uses"]
    assert (use["n_keys"], use["why_unknown"]) == (None, "file removed by retention")
    with world.platform.transaction() as conn:
        [model, *_] = list_models(conn, world.run("by_amount", "live").id)
    assert "unknown: " in run("model", "lineage", model.hash).stdout
