"""Detectors of errors and costs of misclassifications where labels arrive later: each error is read once, by brute force."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.data.split import TRAIN
from modyn_dagster.keys import ORIGIN, KeyRange, ordinal_of
from modyn_dagster.pipeline.context import trained_contexts
from modyn_dagster.pipeline.measure.measurer import Measurer
from modyn_dagster.spec.triggers.detector import DetectorSpec
from modyn_dagster.triggering import DetectorNeed
from modyn_dagster.triggering.detectors import DetectorReader
from tests.pipeline.labels.first_labels import FirstLabel, between, first_labels, label_then, predicted
from tests.pipeline.labels.laws import DAYS, GAP, Delivery, drawn_labels, replayed
from tests.pipeline.labels.pipelines import COST, pipeline_of
from tests.pipeline.late_labels import Label, arrive_later
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, Content, triggered

Worlds = Callable[..., World]

SPLIT = {"train": 0.7, "calibrate": 0.3}
DETECTOR = TypeAdapter(DetectorSpec).validate_python({"name": "page_hinkley", "threshold": 1.0, "min_instances": 5})


def late_world(world_of: Worlds, pipeline: Content, labels: list[Label]) -> World:
    world = world_of(pipeline, split=SPLIT)
    world.deliver(range(DAYS))
    arrive_later(world, GAP)
    Delivery.of(labels, 1)(world)
    return world


def is_trained_on(each: FirstLabel, key: int, point: int) -> bool:
    """Tell whether a sample was there, with a label, when a trigger at a point chose among the samples up to a key."""
    return each.key <= key and each.batch <= ordinal_of(point)


def models_of(world: World, run: RunRow) -> list[tuple[int, str]]:
    """Key and model of each trained trigger."""
    contexts = trained_contexts(world.platform, run, world.platform.view(DATASET))
    return [(context.trigger.key, context.model.hash) for context in contexts if context.model is not None]


@pytest.mark.long
@pytest.mark.parametrize(
    ("trigger", "seed"),
    [
        ("time", 21),
        *(pytest.param("time", seed, marks=pytest.mark.soak("labels")) for seed in (22, 23)),
        *(pytest.param("amount", seed, marks=pytest.mark.soak("labels")) for seed in (21, 22, 23)),
    ],
)
def test_a_detector_reads_each_error_once_when_its_label_is_known(world_of: Worlds, monkeypatch, trigger: str, seed: int) -> None:
    labels = drawn_labels(seed)
    world = late_world(world_of, pipeline_of(trigger), labels)
    run, order = replayed(world, "late", "first"), first_labels(world, labels)
    (first, model), *_ = models_of(world, run)
    point = world.triggers(run.id, "trained")[0].point
    run, view, classes = replace(run, previous_model=model), world.platform.view(DATASET), predicted(world, run, model)
    points = [first, *view.keys_on(TRAIN, KeyRange(first, view.last_key)).tolist()[10::11]]
    needs = [DetectorNeed(n, KeyRange(first, until), since, DETECTOR) for n, (since, until) in enumerate(pairwise(points))]
    read, read_values = list[float](), DetectorReader.read

    def recorded(reader: DetectorReader, values: np.ndarray[Any, Any], after: int = 0) -> int:
        read.extend(values.tolist())
        return read_values(reader, values, after)

    monkeypatch.setattr(DetectorReader, "read", recorded)
    with Measurer(world.platform) as measurer:
        found = [measurer.of(run, view)(need.window.until, {"": need})[""] for need in needs]
    unseen = [each for each in order if not is_trained_on(each, first, point)]
    samples = between(unseen, first, points[-1])
    # A model of every day was trained with labels that came after its last sample.
    assert (len(unseen) < len(between(order, first, view.last_key))) == (trigger == "time")
    errors = [float(classes[each.key] != label_then(labels, each, each.batch)) for each in samples]
    assert read == errors
    # Some are late, and one of them was there before the trigger.
    assert any(ordinal_of(each.key) < each.batch for each in samples) and any(each.key < first for each in samples)
    for need, answer in zip(needs, found, strict=True):
        n_before, n = (len(between(unseen, first, key)) for key in (need.since, need.window.until))
        assert answer.details["fed"] == n
        assert answer.values["detections"] == read_values(DetectorReader(DETECTOR), np.array(errors[:n]), n_before)
    with Measurer(world.platform) as fresh:
        assert fresh.of(run, view)(points[-1], {"": needs[-1]})[""] == found[-1]
    assert sum(answer.values["detections"] or 0 for answer in found) > 0


@pytest.mark.long
@pytest.mark.parametrize("seed", [31, *(pytest.param(seed, marks=pytest.mark.soak("labels")) for seed in (32, 33))])
def test_each_misclassification_adds_regret_at_the_first_point_that_knows_its_label(world_of: Worlds, seed: int) -> None:
    labels = drawn_labels(seed)
    cost = COST | {"every": 9, "signal": "misclassifications", "regret_per_training_second": 9}
    world = late_world(world_of, triggered("late", cost), labels)
    run = replayed(world, "late", "errors")
    order, models, regret, late = first_labels(world, labels), dict(models_of(world, run)), 0, 0
    classes = {key: predicted(world, run, model) for key, model in models.items()}
    previous, trigger = ORIGIN, None
    for point, key, _, fire, reason, score, *_ in world.decisions(run):
        if trigger is not None:
            new = between(order, max(previous, trigger), point)
            regret += sum(classes[trigger][each.key] != label_then(labels, each, ordinal_of(point)) for each in new)
            late += sum(each.key <= max(previous, trigger) for each in new)
            assert score == pytest.approx(regret), reason
        previous = point
        if fire:
            trigger, regret = key, 0
            assert trigger in models
    assert late > 10 and len(models) > 1
