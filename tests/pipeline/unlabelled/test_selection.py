"""Triggers and strategies that read no label choose the same of data without labels as of data with a constant one."""

from typing import Any

import pytest

from modyn_dagster.pipeline.preflight import unlabelled_errors
from tests.pipeline.labels.pipelines import STRATEGIES, TRIGGERS, pipeline_of
from tests.pipeline.unlabelled.streams import AUTOENCODER, CONSTANT, MakeWorld, deliver, unlabelled, world_without_label
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, Content
from tests.variants import represented

#: Variants that read labels, or what a model makes of them.
REFUSED = {
    *("balanced", "gdumb", "gdumb reset", "clib", "gss", "mir", "similar_to_unlabelled"),
    *("amount of labels", "performance", "performance waiting", "performance avoidable", "performance estimated"),
    *("detector of scores", "cost of errors", "ensemble", "budget", "cooldown", "minimum_samples"),
}
#: Variants whose decisions depend on what a model has learnt.
LEARNT = {"drift", "detector of errors"}
SPLIT = {"train": 0.8, "calibrate": 0.1, "evaluate": 0.1}


def autoencoder_of(variant: str) -> Content:
    return unlabelled(pipeline_of(variant), **AUTOENCODER)


def choices(world: World, name: str, dataset: str) -> dict[str, Any]:
    keys = [batch.partition_key for batch in world.platform.view(dataset).batches]
    world.replay(name, keys)
    outcome = world.outcome(world.run(name, "replay"))
    return {field: outcome[field] for field in ("triggers", "training_sets")}


@represented("variant", [name for name in (*STRATEGIES, *TRIGGERS) if name not in REFUSED | LEARNT], "replays", "rtbs unbiased")
def test_the_same_training_sets_are_chosen_as_with_a_constant_label(world_of: MakeWorld, variant: str) -> None:
    without = world_without_label(world_of, autoencoder_of(variant), split=SPLIT)
    classes = pipeline_of(variant, "constant") | {"dataset": "constant"}
    classes["evaluation"]["metrics"] = ["accuracy"]
    constant = world_without_label(world_of, classes, label=CONSTANT, dataset="constant", split=SPLIT)
    deliver(without, range(4))
    deliver(constant, range(4), constant="0", dataset="constant")
    chosen = choices(without, "late", DATASET)
    assert chosen["training_sets"]
    assert chosen == choices(constant, "constant", "constant")


@pytest.mark.soak("replays")
def test_exactly_the_variants_that_read_labels_are_refused(world_of: MakeWorld) -> None:
    found = set()
    for variant in (*STRATEGIES, *TRIGGERS):
        world = world_without_label(world_of, autoencoder_of(variant), split=SPLIT)
        if list(unlabelled_errors(world.platform.pipeline("late"), world.platform.dataset(DATASET))):
            found.add(variant)
    assert found == REFUSED
