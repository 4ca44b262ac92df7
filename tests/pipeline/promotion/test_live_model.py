"""The champion as the live model: triggers and detectors judge it, and trainings start from it."""

from typing import Any

import pytest
import sqlalchemy as sa

from modyn_dagster.catalog.decisions import measurement
from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.catalog.results.promotions import list_promotions
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.pipeline.promotion.actions import act
from tests.pipeline.measuring import drift
from tests.pipeline.promotion.test_live_is_replay import lived, promoting
from tests.pipeline.world import World
from tests.projects.tiny import Content, amount, triggered

DETECTOR = {"name": "page_hinkley", "threshold": 0.1}
#: Pipelines whose triggers need a model, and fire often.
JUDGING: dict[str, Content] = {
    "performance": triggered("p", {"kind": "performance", "every": 40, "decision": {"rule": "threshold", "value": 0.999}}),
    "drift": drift("p", decision={"rule": "threshold", "value": -1.0}),
    "detector": triggered("p", {"kind": "detector", "every": 20, "detector": DETECTOR}),
}


def judged(world: World, run: RunRow) -> list[tuple[int, str]]:
    """Batch and model of every measurement, in order."""
    with world.platform.transaction() as conn:
        rows = sa.select(measurement.c.point, measurement.c.model_hash).where(measurement.c.run_id == run.id)
        return [(point >> 32, model) for point, model in conn.execute(rows.order_by(measurement.c.id))]


def models(world: World, run: RunRow) -> list[str]:
    with world.platform.transaction() as conn:
        return [model.hash for model in list_models(conn, run.id)]


@pytest.mark.parametrize(
    "kind", ["performance", *(pytest.param(each, marks=pytest.mark.soak("production")) for each in ("drift", "detector"))]
)
@pytest.mark.parametrize("live", ["champion", pytest.param("newest", marks=pytest.mark.soak("production"))])
def test_triggers_judge_the_live_model(world_of: Any, kind: str, live: str) -> None:
    world = world_of(promoting(JUDGING[kind], approve="manual", confidence=0.999) | {"live": live})
    run = lived(world, "p", range(3))
    trained = models(world, run)
    assert len(trained) > 2
    before = judged(world, run)
    assert len(before) > 1
    if live == "newest":
        assert {model for _, model in before} >= {trained[0], trained[1]}
        return
    assert {model for _, model in before} == {trained[0]}
    act(world.platform, run, "promote", 1, "ann", "it is needed")
    lived(world, "p", range(3, 4))
    act(world.platform, run, "rollback", None, "ann", "it was not")
    lived(world, "p", range(4, 5))
    after = judged(world, run)[len(before) :]
    assert {model for batch, model in after if batch < 4} == {trained[1]}
    assert {model for batch, model in after if batch == 4} == {trained[0]}


@pytest.mark.soak("production")
@pytest.mark.parametrize("start", ["champion", "newest"])
def test_trainings_start_from_the_champion_or_the_newest_model(world_of: Any, start: str) -> None:
    content = promoting(amount("p", every=40), approve="manual", confidence=0.999)
    content["training"] = content["training"] | {"use_previous_model": start}
    world = world_of(content)
    run = lived(world, "p", range(3))
    act(world.platform, run, "promote", 1, "ann", "it is needed")
    lived(world, "p", range(3, 5))
    act(world.platform, run, "rollback", None, "ann", "it was not")
    lived(world, "p", range(5, 6))
    with world.platform.transaction() as conn:
        trained = list_models(conn, run.id)
        crowned = [event for event in list_promotions(conn, run.id) if event.state == "champion"]
    assert [event.ordinal for event in crowned] == [0, 1, 0]
    began = [None if model.previous_hash is None else models(world, run).index(model.previous_hash) for model in trained]
    assert began == ([None, 0, 0, 1, 1, 0] if start == "champion" else [None, 0, 1, 2, 3, 4])
