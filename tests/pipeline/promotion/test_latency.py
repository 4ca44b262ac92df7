"""The guardrail `max_latency` in a live run: seconds that were measured there decide, as the pure gate does."""

from typing import Any

import pytest

from modyn_dagster.catalog.results.promotions import list_promotions
from modyn_dagster.evaluation.promotion.state import Change
from tests.pipeline.world import World
from tests.projects.tiny import amount

DAYS = 8
QUICK = {"metric": "accuracy", "min_samples": 10, "confidence": 0.6}


def changes(world: World) -> list[Change]:
    """Changes of the models of a live run, without those of candidates that wait or are tested."""
    for day in range(DAYS):
        world.deliver([day])
        world.live_until_idle("p")
    with world.platform.transaction() as conn:
        events = list_promotions(conn, world.run("p", "live").id)
    return [Change(each.ordinal, None, each.state, each.reason, each.actor) for each in events]  # type: ignore[arg-type]


@pytest.mark.soak("replays")
@pytest.mark.parametrize(("bound", "state"), [(1e-12, "rejected"), (1e9, "champion")])
def test_a_candidate_that_predicts_too_slowly_is_rejected_by_its_measured_seconds(
    world_of: Any, bound: float, state: str
) -> None:
    world = world_of(amount("p", every=60) | {"promotion": QUICK | {"guardrails": {"max_latency": bound}}})
    found = [each for each in changes(world) if each.trigger > 0 and each.state in ("champion", "rejected")]
    assert state in {each.state for each in found}
    broken = [each for each in found if "guardrails.max_latency" in each.reason]
    assert bool(broken) == (state == "rejected")
    assert all(each.state == "rejected" for each in broken)
    assert state == "champion" or all(each.state == "rejected" for each in found)
