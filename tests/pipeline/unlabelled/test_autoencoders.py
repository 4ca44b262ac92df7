"""Autoencoders on a dataset without a label: live as replayed, triggered by their errors and by drift, and killed."""

import numpy as np
import pytest

from modyn_dagster.assets.metadata.batches import samples_metadata
from modyn_dagster.catalog.results.evaluations import list_evaluations
from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.catalog.results.predictions import list_predictions
from modyn_dagster.cli.dataset.batches import batch_table
from modyn_dagster.errors import ConfigError
from modyn_dagster.evaluation.predictions.files import read_predictions
from modyn_dagster.pipeline.checks import labels_present
from modyn_dagster.pipeline.stages.trigger_stages import finish_live_run
from tests.pipeline.measuring import drift, performance
from tests.pipeline.unlabelled.streams import CONSTANT, MakeWorld, autoencoder, deliver, unlabelled, world_without_label
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, exact, triggered

WIDE = {"name": "mlp", "hidden": [8, 2, 8]}


def fires(world: World, name: str, mode: str = "replay") -> list[str]:
    return [reason for _, _, _, fire, reason, *_ in world.decisions(world.run(name, mode)) if fire]


@pytest.mark.soak("replays")
def test_a_live_autoencoder_is_the_replayed_one(world_of: MakeWorld) -> None:
    world = world_without_label(world_of, autoencoder(every=60))
    deliver(world, range(4))
    world.live_until_idle("by_amount")
    list(finish_live_run(world.platform, world.run("by_amount", "live")))
    world.replay("by_amount")
    live, replayed = (world.outcome(world.run("by_amount", mode)) for mode in ("live", "replay"))
    assert live == replayed
    assert len(live["models"]) == 2
    with world.platform.transaction() as conn:
        cells = list_evaluations(conn, world.run("by_amount", "replay").id)
    assert {cell.metric for cell in cells} == {"reconstruction_mse", "reconstruction_mae"}
    assert all(cell.value is not None and cell.value > 0 for cell in cells if cell.n_samples)


def test_stored_predictions_are_the_errors_of_each_sample_and_no_label(world_of: MakeWorld) -> None:
    world = world_without_label(world_of, exact(autoencoder(every=60)))
    deliver(world, range(2))
    world.replay("by_amount")
    run = world.run("by_amount", "replay")
    with world.platform.transaction() as conn:
        [model, *_] = list_models(conn, run.id)
        [file, *_] = list_predictions(conn, model.trigger_id, model.hash)
    found = read_predictions(world.platform.home / file.path, file.checksum)
    assert found.kind == "reconstruction"
    assert found.outputs.shape == (80, 2)
    np.testing.assert_array_equal(found.losses, found.outputs[:, 0])
    assert not found.truth.any()


@pytest.mark.soak("replays")
def test_an_error_that_rises_triggers(world_of: MakeWorld) -> None:
    watched = unlabelled(performance(metric="reconstruction_mse", decision={"rule": "threshold", "value": 2.0}))
    world = world_without_label(world_of, watched)
    deliver(world, range(3))
    deliver(world, range(3, 6), shift=6.0)
    world.replay("by_performance")
    world.live_until_idle("by_performance")
    reasons = fires(world, "by_performance")
    assert reasons[0] == "no model yet"
    assert reasons[1].startswith("reconstruction_mse ")
    assert world.decisions(world.run("by_performance", "live")) == world.decisions(world.run("by_performance", "replay"))


@pytest.mark.soak("replays")
def test_a_detector_reads_the_errors_of_samples(world_of: MakeWorld) -> None:
    block = {"kind": "detector", "every": 20, "detector": {"name": "page_hinkley"}}
    world = world_without_label(world_of, unlabelled(triggered("by_detector", block)))
    deliver(world, range(3))
    deliver(world, range(3, 6), shift=6.0)
    world.replay("by_detector")
    assert len(fires(world, "by_detector")) > 1


@pytest.mark.soak("replays")
@pytest.mark.parametrize("of", ["outputs", "embeddings", "columns"])
def test_drift_of_what_an_autoencoder_sees_and_makes_triggers(world_of: MakeWorld, of: str) -> None:
    world = world_without_label(
        world_of,
        unlabelled(drift(of=of, decision={"rule": "threshold", "value": 0.02}), model=WIDE, loss={"name": "reconstruction"}),
    )
    deliver(world, range(2))
    deliver(world, range(2, 4), shift=6.0)
    world.replay("by_drift")
    assert len(fires(world, "by_drift")) > 1


def test_a_dataset_without_a_label_says_so(world_of: MakeWorld) -> None:
    world = world_without_label(world_of, autoencoder())
    deliver(world, [0])
    view = world.platform.view(DATASET)
    assert view.spec.label is None
    [batch] = view.batches
    assert not batch.label_counts
    assert labels_present(view.spec, batch).description == "the dataset has no labels"
    assert samples_metadata(batch, view.row, 0)["Labels"] == "no label"
    assert "40 samples, no label; 1 ingested" in str(batch_table(DATASET, view.batches, {}, has_label=False).caption)
    with pytest.raises(ConfigError, match="label: cannot change once data are ingested, it was none; restore it"):
        world_without_label(world_of, label=CONSTANT).platform.view(DATASET)
    samples = view.reader.read(np.array([0, 1], np.uint64))
    assert samples.labels is None
    assert samples.targets is None
