"""``model compare``: two models of a replayed pipeline on the samples that are new to both."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from modyn_dagster.catalog.results.models import ModelRow, list_models
from modyn_dagster.catalog.results.predictions import list_predictions, mark_predictions_removed
from modyn_dagster.cli import main
from modyn_dagster.cli.model.compare import TESTS
from modyn_dagster.data.split import EVALUATE, side_of
from modyn_dagster.evaluation.predictions.files import read_predictions
from modyn_dagster.spec.promotion import gate
from tests.conftest import TEMPLATE, RunningServer
from tests.pipeline.world import World, make_world
from tests.projects.tiny import amount, exact

SPLIT = {"train": 0.5, "calibrate": 0.1, "evaluate": 0.4}


@pytest.fixture(scope="module")
def replayed(postgres_server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Two replayed pipelines: every model of one predicts all, those of the other their own intervals alone."""
    folder = tmp_path_factory.mktemp("compared")
    settings = postgres_server.settings(folder, folder / "home", "tcompare_")
    postgres_server.create_database("tcompare_modyn", TEMPLATE)
    few = exact(amount("few", every=40)) | {"seed": 8}
    few["evaluation"] |= {"matrix": "composite"}
    made = make_world(settings, folder / "project", [exact(amount(every=40)), few], split=SPLIT)
    made.deliver(range(8))
    for name in ("by_amount", "few"):
        made.replay(name)
    yield made
    made.close()
    postgres_server.drop_database("tcompare_modyn")


@pytest.fixture
def world(replayed: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """The world of ``replayed`` as the project of the environment."""
    for name, value in replayed.settings.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("COLUMNS", "200")
    return replayed


def compare(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["model", "compare", *arguments])


def refused(*arguments: str, code: int = 1) -> str:
    result = compare(*arguments)
    assert result.exit_code == code, (result.stdout, result.exception)
    if code == 1:
        assert result.stderr.count("\n") == 1
    return result.stderr


def models_of(world: World, pipeline: str = "by_amount") -> list[ModelRow]:
    run = world.run(pipeline, "replay")
    with world.platform.transaction() as conn:
        return list_models(conn, run.id)


def keys_of(model: ModelRow) -> str:
    return f"{model.run_id:06d}-{model.ordinal:06d}"


def correct(world: World, model: ModelRow, after: int) -> dict[int, bool]:
    """Right predictions of a model for evaluation samples after a key, straight from its files."""
    with world.platform.transaction() as conn:
        files = list_predictions(conn, model.trigger_id)
    found: dict[int, bool] = {}
    for file in files:
        part = read_predictions(world.platform.home / file.path, file.checksum)
        right = part.outputs.argmax(axis=1) == part.truth
        found |= {key: bool(r) for key, r in zip(part.keys.tolist(), right.tolist(), strict=True) if key > after}
    return found


@pytest.mark.soak("screens")
def test_the_pairs_are_those_after_both_triggers_and_the_mean_difference_is_that_of_the_files(world: World) -> None:
    models = models_of(world)
    first, third = models[0], models[2]
    shown = json.loads(compare(third.hash[:16], keys_of(first), "--json").stdout)
    point = max(
        trigger.point for trigger in world.triggers(third.run_id, "trained") if trigger.id in (first.trigger_id, third.trigger_id)
    )
    ours, theirs = correct(world, third, point), correct(world, first, point)
    assert ours.keys() == theirs.keys()
    split = world.platform.dataset("tiny").split
    assert (side_of(np.array(list(ours), np.uint64), split) == EVALUATE).all()
    assert shown["n"] == len(ours) > 20
    assert shown["difference"] == pytest.approx(np.mean([ours[key] - theirs[key] for key in ours]))
    assert shown["candidate_score"] == pytest.approx(np.mean(list(ours.values())))
    assert shown["path"]["n"][-1] == shown["n"]
    assert shown["path"]["lower"][-1] == pytest.approx(shown["bounds"]["lower"])
    back = json.loads(compare(keys_of(first), third.hash, "--json").stdout)
    assert back["difference"] == -shown["difference"]
    assert back["bounds"]["upper"] == pytest.approx(-shown["bounds"]["lower"])


def test_tables_show_scores_verdict_and_the_bounds_over_samples_and_a_plot_is_written(world: World, tmp_path: Path) -> None:
    models = models_of(world)
    plot = tmp_path / "bounds.png"
    result = compare(models[2].hash, models[0].hash, "--metric", "log_loss", "--plot", str(plot))
    assert result.exit_code == 0, result.stderr
    assert f"by_amount {keys_of(models[2])} ({models[2].hash[:12]}) against" in result.stdout
    assert "lower bound" in result.stdout
    assert "with 95% confidence the true difference" in result.stdout
    assert plot.read_bytes().startswith(b"\x89PNG")
    clear = compare(models[2].hash, models[0].hash, "--margin", "0.9", "--confidence", "0.9")
    assert "worse or equal: on" in clear.stdout


def test_the_other_tests_answer_too(world: World) -> None:
    models = models_of(world)
    pair = models[2].hash, models[0].hash
    sign = json.loads(compare(*pair, "--test", "mcnemar", "--look", "3", "--json").stdout)
    assert sign["reason"].endswith("at look 3")
    area = json.loads(compare(*pair, "--metric", "roc_auc", "--test", "block_bootstrap", "--block", "4", "--json").stdout)
    assert area["difference"] == pytest.approx(area["candidate_score"] - area["incumbent_score"])
    assert area["path"] is None
    assert compare(*pair, "--metric", "roc_auc", "--test", "block_bootstrap").exit_code == 0


def test_a_window_and_a_least_number_of_samples_are_kept(world: World) -> None:
    models = models_of(world)
    pair = models[2].hash, models[0].hash
    whole, part = (json.loads(compare(*pair, *options, "--json").stdout) for options in ((), ("--window", "1d")))
    assert 0 < part["n"] < whole["n"]
    few = json.loads(compare(*pair, "--min-samples", "10000", "--json").stdout)
    assert (few["result"], few["reason"]) == ("undecided", f"{few['n']} samples, at least 10,000 are needed")


def test_a_model_without_predictions_says_what_makes_them_and_the_rest_is_compared(world: World) -> None:
    model, first = models_of(world)[0], models_of(world, "few")[0]
    command = f"`modyn-dagster pipeline matrix few --run {first.run_id}` predicts them"
    # Models of that pipeline predict their own intervals alone: this one none of the newest days.
    shown = json.loads(compare(model.hash, first.hash, "--json").stdout)
    assert command in shown["note"]
    point = next(trigger.point for trigger in world.triggers(first.run_id) if trigger.id == first.trigger_id)
    assert 0 < shown["n"] < len(correct(world, model, point))
    with world.platform.transaction() as conn:
        mark_predictions_removed(conn, [file.id for file in list_predictions(conn, first.trigger_id)])
    assert command in refused(model.hash, first.hash)


def test_mistakes_are_told_in_one_sentence(world: World) -> None:
    models = models_of(world)
    one, other = models[2].hash, models[0].hash
    assert "is the same model as the incumbent" in refused(one, keys_of(models[2]))
    assert "no model of a trigger" in refused("fffff", other)
    assert "000009-000001" in refused("000009-000001", other)
    assert "no model of a trigger" in refused("", other)
    assert "use confidence_sequence" in refused(one, other, "--test", "mcnemar", "--margin", "0.1")
    assert "mcnemar tests the accuracy alone" in refused(one, other, "--test", "mcnemar", "--metric", "log_loss")
    assert "test it with confidence_sequence" in refused(one, other, "--test", "block_bootstrap")
    assert "test it with block_bootstrap" in refused(one, other, "--metric", "roc_auc")
    assert "the dataset's label is a class" in refused(one, other, "--metric", "mse", "--bound", "1")
    assert "estimates without labels" in refused(one, other, "--metric", "estimated_accuracy")
    assert "holds at every look" in refused(one, other, "--look", "2")
    assert "must lie between 0 and 1" in refused(one, other, "--confidence", "1")
    assert "finite number" in refused(one, other, "--margin", "nan")
    assert "only confidence_sequence has bounds along the stream" in refused(one, other, "--test", "mcnemar", "--plot", "x.png")
    assert "whole number and a unit" in refused(one, other, "--window", "soon", code=2)
    assert "lies within the window 1s" in refused(one, other, "--window", "1s")


def test_the_names_of_the_tests_are_those_of_the_library() -> None:
    assert TESTS == gate.TESTS
