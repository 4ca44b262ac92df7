"""Samples that two models are compared on, where labels arrive later: known and mature ones alone."""

from collections.abc import Callable

import numpy as np
import pytest

from modyn_dagster.errors import RunError
from modyn_dagster.pipeline.paired.common_samples import common_samples
from modyn_dagster.pipeline.paired.named_models import named_model
from tests.pipeline.late_labels import add_labels, arrive_later, at_once
from tests.pipeline.test_maturity import judged, slow_negatives
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, amount


def test_samples_are_labelled_and_of_the_age_of_the_longer_maturity(world_of: Callable[..., World]) -> None:
    world = world_of(judged(amount(), maturity="2d"))
    world.deliver(range(8))
    labels = slow_negatives(at_once(world))
    arrive_later(world)
    add_labels(world, labels)
    world.replay("by_amount")
    first, second, third = world.triggers(world.run("by_amount", "replay").id, "trained")[:3]
    found = common_samples(*(named_model(world.platform, each.partition_key) for each in (second, first)))
    view = world.platform.view(DATASET)
    times = {(batch.ordinal << 32) + row: time for batch in view.batches for row, time in enumerate(view.times(batch))}
    values = {label.key: label.value for label in labels}
    newer = [key for key in times if key > second.point]
    mature = [key for key in newer if times[key] + np.timedelta64(2, "D") <= max(times.values())]
    assert found.keys.tolist() == [key for key in mature if key in values]
    assert found.truth.tolist() == [values[key] for key in found.keys.tolist()]
    assert (found.immature, found.unlabelled) == (len(newer) - len(mature), len(mature) - len(found))
    assert len(found) > 0
    assert found.unlabelled > 0
    with pytest.raises(RunError, match=r"all \d+ samples .* are younger than evaluation\.maturity"):
        common_samples(*(named_model(world.platform, each.partition_key) for each in (third, first)))
