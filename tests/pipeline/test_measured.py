"""Measurements: live equals replay, and the samples a measurement is taken from."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from pydantic import TypeAdapter

from modyn_dagster.catalog.decisions import measurements_after
from modyn_dagster.catalog.results.predictions import list_predictions
from modyn_dagster.data.split import TRAIN
from modyn_dagster.errors import ConfigError, RunError
from modyn_dagster.evaluation import Predictions, read_predictions
from modyn_dagster.keys import ORIGIN, KeyRange, ordinal_of
from modyn_dagster.pipeline.decide.driver import decisions_until_fire
from modyn_dagster.pipeline.measure.measurer import Measurer
from modyn_dagster.pipeline.platform import recorded_spec
from modyn_dagster.pipeline.training_stream import training_stream
from modyn_dagster.spec.triggers.detector import DetectorSpec
from modyn_dagster.triggering import DetectorNeed, PerformanceNeed
from modyn_dagster.triggering.build import pipeline_policy
from modyn_dagster.triggering.detectors import DetectorReader
from tests.pipeline.measuring import delete, deliver_with_shift, drift, performance
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, ROWS, exact, triggered
from tests.variants import represented

_DETECTOR: TypeAdapter[DetectorSpec] = TypeAdapter(DetectorSpec)
SPLIT = {"train": 0.7, "calibrate": 0.3}


POLICIES = [
    drift(),
    drift("by_columns", of="columns", decision={"rule": "quantile", "window": 3, "quantile": 0.3}),
    drift("by_outputs", of="outputs", metrics={"ks": {"metric": "ks"}}, decision={"rule": "p_value", "alpha": 0.01}),
    drift(
        "by_own_metric",
        of="columns",
        metrics={"mean": {"metric": "custom", "factory": "tiny_metrics:sampled_mean"}},
        decision={"rule": "threshold", "value": 0.5},
    ),
    performance(),
    performance("by_misclassifications", decision={"rule": "misclassifications", "value": 4, "expected_accuracy": "calibrate"}),
    performance("label_free", label_free=True),
    performance(
        "label_free_area",
        metric="roc_auc",
        label_free=True,
        interval=0.9,
        decision={"rule": "quantile", "window": 3, "quantile": 0.5},
    ),
    triggered("by_detector", {"kind": "detector", "every": 20, "detector": {"name": "page_hinkley", "threshold": 3}}),
    triggered(
        "by_cost",
        {
            "kind": "cost",
            "every": 20,
            "signal": "misclassifications",
            "regret_per_training_second": 5,
            "seconds": {"fixed": 1, "per_sample": 0.01},
        },
    ),
    triggered(
        "by_vote",
        {
            "kind": "ensemble",
            "rule": "any",
            "policies": {
                "drift": drift()["trigger"],
                "capped": {"kind": "cooldown", "samples": 30, "policy": performance()["trigger"]},
                "amount": {"kind": "amount", "every": 70},
            },
        },
    ),
]


# Wrappers and variants of policies take long, and others show what they show.
@represented("pipeline", {each["name"]: each for each in POLICIES}, "replays", "by_drift")
def test_live_equals_replay_decision_by_decision(world_of, pipeline):
    world, name = world_of(pipeline, split=SPLIT), pipeline["name"]
    for days in ([0], [1, 2, 3], [], [4], [5, 6]):
        deliver_with_shift(world, days)
        world.live_until_idle(name)
    world.replay(name)
    live_run, replayed = (world.run(name, mode) for mode in ("live", "replay"))
    decisions = world.decisions(live_run)
    assert decisions == world.decisions(replayed)
    for part in ("triggers", "training_sets", "models"):
        assert world.outcome(live_run)[part] == world.outcome(replayed)[part]
    assert len(world.triggers(live_run.id, "trained")) >= 2, [row[4] for row in decisions]
    assert any(row[5] is not None for row in decisions)
    assert live_run.policy_state == replayed.policy_state


def test_drift_fires_where_the_points_move(world_of):
    world = world_of(drift(), split=SPLIT)
    deliver_with_shift(world, range(7))
    world.replay("by_drift")
    run = world.run("by_drift", "replay")
    assert [ordinal_of(trigger.key) for trigger in world.triggers(run.id)][:2] == [0, 4]


def test_performance_is_that_of_the_newest_model_on_what_is_new(world_of):
    world = world_of(exact(performance()), split=SPLIT)
    deliver_with_shift(world, range(7))
    world.replay("by_performance")
    run, view = world.run("by_performance", "replay"), world.platform.view(DATASET)
    judged, model, before = 0, None, ORIGIN
    triggers = {trigger.point: trigger for trigger in world.triggers(run.id)}
    for point, _, _, fire, _, score, _, details in world.decisions(run):
        if model is not None:
            outputs = predicted_by(world, model)
            new = np.isin(outputs.keys, view.keys_on(TRAIN, KeyRange(before, point)))
            assert details["n_samples"] == new.sum() == 20
            assert score == np.mean(outputs.outputs[new].argmax(axis=1) == outputs.truth[new])
            assert fire is (score <= 0.7)
            judged += 1
        before, model = point, triggers.get(point, model)
    assert judged > 5


def test_every_block_is_computed_once_per_model_however_windows_overlap(world_of):
    windows = {"by": "amount", "reference": 200, "current": 60, "overlap": True}
    world = world_of(drift(every=5, windows=windows))
    world.deliver(range(5))
    first = world.tick("by_drift").train
    assert first is not None
    world.train("by_drift", first)
    run, view = world.run("by_drift", "live"), world.platform.view(DATASET)
    policy = pipeline_policy(recorded_spec(run))
    policy.load_state_dict(run.policy_state)
    points = 0
    with Measurer(world.platform) as measurer:
        measure = measurer.of(run, view)
        for _ in range(3):
            points += len(list(decisions_until_fire(policy, run.cursor, training_stream(view, ORIGIN), measure)))
        assert points > 20
        assert measurer.extractor is not None
        assert measurer.extractor.n_passes == 5, "one per batch of 40 samples"


@pytest.mark.parametrize(("metric", "better"), [("accuracy", 1), ("roc_auc", 1), ("log_loss", 0)])
def test_an_estimate_with_an_interval_is_judged_by_its_better_end(world_of, metric, better):
    world = world_of(performance(metric=metric, label_free=True, interval=0.9), split=SPLIT)
    deliver_with_shift(world, range(4))
    first = world.tick("by_performance").train
    assert first is not None
    world.train("by_performance", first)
    run, view = world.run("by_performance", "live"), world.platform.view(DATASET)
    need = PerformanceNeed(0, KeyRange(first.key, 4 << 32), metric, True, KeyRange(ORIGIN, first.key))
    with Measurer(world.platform) as measurer:
        measure = measurer.of(run, view)
        plain, wide, wider = (measure(4 << 32, {"": replace(need, interval=level)})[""] for level in (None, 0.5, 0.99))
    for answer in (wide, wider):
        assert answer.details["estimate"] == plain.values[metric]
        assert answer.values[metric] == answer.details["interval"][better]
        assert answer.values["n_samples"] == plain.values["n_samples"]
    assert plain.values["n_samples"]
    assert wider.details["interval"][0] < wide.details["interval"][0] <= plain.values[metric] <= wide.details["interval"][1]
    assert "interval" not in plain.details


@pytest.mark.parametrize("stream", ["errors", "scores"])
def test_a_detector_reads_every_sample_once_per_model_and_says_what_a_fresh_one_says(world_of, monkeypatch, stream):
    detector = {"name": "page_hinkley", "threshold": 2}
    world = world_of(triggered("by_detector", {"kind": "detector", "every": 15, "detector": detector, "stream": stream}))
    deliver_with_shift(world, range(7))
    first = world.tick("by_detector").train
    assert first is not None
    world.train("by_detector", first)
    run, view, read, read_values = world.run("by_detector", "live"), world.platform.view(DATASET), [], DetectorReader.read

    def recorded(reader: DetectorReader, values: np.ndarray, after: int) -> int:
        read.append(len(values))
        return read_values(reader, values, after)

    monkeypatch.setattr(DetectorReader, "read", recorded)
    needs = [
        DetectorNeed(n, KeyRange(first.key, until), since, _DETECTOR.validate_python(detector), stream)
        for n, (since, until) in enumerate(
            pairwise([first.key, *view.keys_on(TRAIN, KeyRange(first.key, 7 << 32)).tolist()[::15]])
        )
    ]
    with Measurer(world.platform) as kept_on:
        measure = kept_on.of(run, view)
        found = [measure(need.window.until, {"": need}) for need in needs]
    assert sum(read) == found[-1][""].details["fed"] == training_stream(view, ORIGIN).count(first.key, needs[-1].window.until)
    assert sum(answer[""].values["detections"] or 0 for answer in found) > 0
    for need, answer in zip(needs, found):
        with Measurer(world.platform) as fresh:
            assert fresh.of(run, view)(need.window.until, {"": need}) == answer
    with Measurer(world.platform) as skipping:
        measure = skipping.of(run, view)
        assert [measure(need.window.until, {"": need}) for need in (needs[0], needs[4], needs[2], needs[4])] == [
            found[0],
            found[4],
            found[2],
            found[4],
        ]


def test_deleted_samples_are_not_measured_and_change_no_decision_of_before(world_of):
    world = world_of(drift(decision={"rule": "threshold", "value": 1e9}), split={"train": 0.8, "evaluate": 0.2})
    world.deliver(range(2))
    world.live_until_idle("by_drift")
    before = world.decisions(world.run("by_drift", "live"))
    delete(world, [ordinal << 32 | position for ordinal in (0, 1) for position in range(20)])
    world.deliver(range(2, 4))
    delete(world, [2 << 32 | position for position in range(ROWS)])
    world.live_until_idle("by_drift")
    live_run = world.run("by_drift", "live")
    assert world.decisions(live_run)[: len(before)] == before
    with world.platform.transaction() as conn:
        rows = measurements_after(conn, live_run.id, str(live_run.previous_model), ORIGIN)
    in_batch_2 = [row.details[""]["current_window"]["samples"] for row in rows if ordinal_of(row.point) == 2]
    assert in_batch_2
    assert in_batch_2[-1] < 30
    assert all(row.details[""]["current_window"]["samples"] == 30 for row in rows if ordinal_of(row.point) == 1)


def test_a_window_whose_samples_are_all_gone_has_no_score_and_fires_nothing(world_of):
    world = world_of(drift())
    world.deliver(range(2))
    trained = world.tick("by_drift").train
    assert trained is not None
    world.train("by_drift", trained)
    delete(world, range(trained.key + 1))
    [*_, last] = world.measure("by_drift")
    assert [row.fire for row in last.decisions] == [False] * len(last.decisions)
    now = world.tick("by_drift")
    assert all(row[5] is None for row in world.decisions(now.run)[1:])


def test_what_cannot_be_measured_is_said_before_anything_starts(world_of):
    calibrated = {"rule": "misclassifications", "value": 4, "expected_accuracy": "calibrate"}
    refused = {
        "no_share": (performance("no_share", decision=calibrated), "dataset tiny: split: must leave a `calibrate` share"),
        "no_labels": (performance("no_labels", label_free=True), "split: must leave a `calibrate` share: trigger of"),
        "wrong_metric": (performance("wrong_metric", metric="mae"), r"trigger\.metric: the dataset's label is a class: use acc"),
        "wrong_layer": (
            drift("wrong_layer", features={"of": "embeddings", "layer": "9"}),
            r"trigger\.features\.layer: mlp has no such layer; known: 0, 1, 2",
        ),
    }
    world = world_of(*(content for content, _ in refused.values()))
    world.deliver([0])
    for name, (_, text) in refused.items():
        with pytest.raises(ConfigError, match=text):
            world.replay(name)


def test_a_policy_that_wants_something_measured_before_there_is_a_model_is_told_so(world_of):
    world = world_of(drift())
    world.deliver([0])
    run = world.tick("by_drift").run
    need = PerformanceNeed(0, KeyRange(ORIGIN, 5), "accuracy")
    with Measurer(world.platform) as measurer, pytest.raises(RunError, match="there is no model yet"):
        measurer.of(run, world.platform.view(DATASET))(5, {"": need})


def predicted_by(world: World, trigger) -> Predictions:
    with world.platform.transaction() as conn:
        files = list_predictions(conn, trigger.id)
    return Predictions.concat([read_predictions(world.platform.home / file.path, file.checksum) for file in files])
