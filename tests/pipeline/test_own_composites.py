"""A composite model of the user's own in a pipeline: its models are evaluated, and everything shows its scores."""

from typing import Any

import pytest

from modyn_dagster.pipeline.stages.trigger_stages import finish_live_run
from modyn_dagster.reporting.comparison import compare_runs
from modyn_dagster.reporting.plots.sketches import scores_svg
from modyn_dagster.reporting.summary import RunSummary, summarise_run
from modyn_dagster.reporting.tables import comparison_table, scores_table
from tests.evaluation import user_composites
from tests.pipeline.world import World
from tests.projects.tiny import Content, amount


def with_composite(name: str, chosen: str, **evaluation: Any) -> Content:
    content = amount(name, every=60)
    block = {"name": "cautious", "factory": f"{user_composites.__name__}:{chosen}"}
    return content | {"evaluation": content["evaluation"] | {"composite": block} | evaluation}


def summary(world: World, name: str, mode: Any = "replay") -> RunSummary:
    with world.platform.transaction() as conn:
        return summarise_run(conn, world.run(name, mode))


def test_its_models_are_evaluated_and_its_scores_are_shown_beside_the_others(world_of: Any) -> None:
    world = world_of(
        with_composite("p", "before_last"), with_composite("full", "before_last", matrix="full"), amount("plain", every=60)
    )
    world.deliver(range(6))
    for name in ("p", "full", "plain"):
        world.replay(name)
    found, whole, plain = (summary(world, name) for name in ("p", "full", "plain"))
    assert [score.to_json() for score in found.own] == [score.to_json() for score in whole.own]
    assert {score.reason for score in found.own} <= {None, "no model is chosen"}
    assert any(score.value is not None for score in found.own)
    assert found.own != found.active
    assert [score.to_json() for score in found.active] == [score.to_json() for score in plain.active]
    assert (plain.own, plain.composite, "own" in plain.to_json()) == ((), None, False)
    assert (found.to_json()["composite"], found.to_json()["mean_own_score"]) == ("cautious", found.mean_own)
    assert "cautious, a composite model of yours" in scores_table(found).caption
    assert "cautious: your composite model" in scores_svg(found)
    table = comparison_table(compare_runs([found, plain]))
    assert table.header[-1] == "cautious"
    assert [row[-1] for row in table.rows] == [f"{compare_runs([found, plain]).runs[0].own:.4f}", "–"]


@pytest.mark.soak("replays")
def test_a_live_run_has_the_scores_of_a_replay(world_of: Any) -> None:
    world = world_of(with_composite("p", "before_last"))
    for day in range(6):
        world.deliver([day])
        world.live_until_idle("p")
    list(finish_live_run(world.platform, world.run("p", "live")))
    world.replay("p")
    assert [score.to_json() for score in summary(world, "p", "live").own] == [
        score.to_json() for score in summary(world, "p").own
    ]
