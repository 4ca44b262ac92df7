"""Pipelines with a stream detector of the user's own: live equals replay, and measuring runs go on from its recorded state."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from modyn_dagster.catalog.decisions import measurement
from modyn_dagster.data.split import TRAIN
from modyn_dagster.errors import ConfigError, MissingExtra
from modyn_dagster.keys import KeyRange
from modyn_dagster.pipeline.measure.measurer import Measurer
from modyn_dagster.pipeline.preflight import require_runnable
from modyn_dagster.spec.pipeline import PipelineSpec
from modyn_dagster.spec.triggers.detector import CustomDetectorSpec
from modyn_dagster.triggering import DetectorNeed
from modyn_dagster.triggering.detectors import DetectorReader
from tests.pipeline.measuring import deliver_with_shift
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, triggered

DETECTOR = {"name": "custom", "factory": "tiny_detectors:TooMany", "config": {"limit": 2}}
PIPELINE = triggered("by_detector", {"kind": "detector", "every": 30, "detector": DETECTOR})


@pytest.fixture
def fed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Number of values of every piece that a detector reads."""
    pieces, read = list[int](), DetectorReader.read

    def recorded(reader: DetectorReader, values: Any, after: int = 0) -> int:
        pieces.append(len(values))
        return read(reader, values, after)

    monkeypatch.setattr(DetectorReader, "read", recorded)
    return pieces


def measured(world: World, mode: str) -> list[tuple[Any, ...]]:
    run = world.run("by_detector", mode)
    with world.platform.transaction() as conn:
        columns = measurement.c.point, measurement.c["values"], measurement.c.details
        return [tuple(row) for row in conn.execute(sa.select(*columns).where(measurement.c.run_id == run.id).order_by("point"))]


@pytest.mark.parametrize(
    "deliveries",
    [
        pytest.param([[0], [1]], id="two"),
        pytest.param([[0], [1], [2], [3, 4], [5], [6]], marks=pytest.mark.soak("replays"), id="six"),
    ],
)
def test_live_equals_replay_and_reads_every_sample_once_per_model(world_of, fed, deliveries):
    world = world_of(PIPELINE)
    for days in deliveries:
        deliver_with_shift(world, days)
        world.live_until_idle("by_detector")
    once = sum(fed)
    assert once == sum(later[2][""]["fed"] for later in last_of_each_model(measured(world, "live")))
    world.replay("by_detector")
    live, replayed = (world.run("by_detector", mode) for mode in ("live", "replay"))
    decisions = world.decisions(live)
    assert decisions == world.decisions(replayed)
    assert measured(world, "live") == measured(world, "replay")
    assert sum(fed) == 2 * once
    assert any(row[3] and row[5] for row in decisions), "it sounded"


def last_of_each_model(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Measurements after which a detector began afresh, and the last one."""
    after = [row[2][""]["window"]["after"] for row in rows]
    return [row for row, here, there in zip(rows, after, [*after[1:], None], strict=True) if here != there]


def test_a_measurer_goes_on_from_the_recorded_state_of_the_point_before_and_only_from_that(world_of, fed):
    world = world_of(PIPELINE | {"trigger": {**PIPELINE["trigger"], "detector": DETECTOR | {"config": {"limit": 1e6}}}})
    deliver_with_shift(world, [0, 1])
    world.live_until_idle("by_detector")
    run, rows = world.run("by_detector", "live"), measured(world, "live")
    point, _, details = rows[-1]
    spec = CustomDetectorSpec.model_validate(DETECTOR | {"config": {"limit": 1e6}})
    after = details[""]["window"]["after"]
    deliver_with_shift(world, [2])
    view = world.platform.view(DATASET)
    last = int(view.keys_on(TRAIN, KeyRange(after, view.last_key))[-1])

    def answer(since: int, detector: CustomDetectorSpec = spec) -> tuple[Any, int]:
        fed.clear()
        with Measurer(world.platform) as measurer:
            found = measurer.of(run, view)(last, {"": DetectorNeed(9, KeyRange(after, last), since, detector)})[""]
        return found, sum(fed)

    going_on, n_read = answer(point)
    assert n_read == going_on.details["fed"] - details[""]["fed"] > 0
    # No measurement is recorded at the key before, and none of another config.
    afresh, n_read = answer(point - 1)
    assert n_read == afresh.details["fed"] and afresh.details["reader"] == going_on.details["reader"]
    other, n_read = answer(point, CustomDetectorSpec.model_validate(DETECTOR))
    assert n_read == other.details["fed"] == afresh.details["fed"]


def test_a_detector_that_is_cut_into_points_says_what_one_over_the_whole_stretch_says(world_of):
    world = world_of(triggered("by_detector", {"kind": "detector", "every": 60, "detector": DETECTOR}))
    deliver_with_shift(world, range(6))
    first = world.tick("by_detector").train
    assert first is not None
    world.train("by_detector", first)
    run, view = world.run("by_detector", "live"), world.platform.view(DATASET)
    keys = view.keys_on(TRAIN, KeyRange(first.key, view.last_key))
    points = [first.key, *keys[np.linspace(0, len(keys) - 1, 8).astype(int)[1:]].tolist()]
    spec = CustomDetectorSpec.model_validate(DETECTOR)
    with Measurer(world.platform) as measurer:
        measure = measurer.of(run, view)
        needs = [DetectorNeed(n, KeyRange(first.key, until), since, spec) for n, (since, until) in enumerate(pairwise(points))]
        found = [measure(need.window.until, {"": need})[""] for need in needs]
    with Measurer(world.platform) as whole:
        expected = whole.of(run, view)(points[-1], {"": DetectorNeed(0, KeyRange(first.key, points[-1]), first.key, spec)})[""]
    detections = sum(each.values["detections"] or 0 for each in found)
    assert detections == expected.values["detections"]
    assert detections > 0
    assert found[-1].details == expected.details


def test_check_asks_for_river_only_where_a_detector_is_of_river(world_of, monkeypatch):
    world = world_of(PIPELINE)
    pipeline, dataset = world.platform.pipeline("by_detector"), world.platform.dataset(DATASET)
    river = triggered("by_river", {"kind": "detector", "detector": {"name": "adwin"}})
    monkeypatch.setattr("modyn_dagster.pipeline.preflight.find_spec", lambda name: None)
    require_runnable(pipeline, dataset)
    with pytest.raises(MissingExtra, match="needs river"):
        require_runnable(PipelineSpec.model_validate(river), dataset)


def test_check_names_the_field_of_a_detector_that_cannot_be_made(world_of):
    dataset = world_of(PIPELINE).platform.dataset(DATASET)
    refused = DETECTOR | {"config": {"limits": 2}}
    content = triggered("by_detector", {"kind": "detector", "detector": refused})
    with pytest.raises(ConfigError, match=r"pipeline by_detector: trigger\.detector\.config: .* refused it: TypeError"):
        require_runnable(PipelineSpec.model_validate(content), dataset)
