"""Laws of labels that arrive later, for every triggering policy and every selection strategy.

Nothing that was decided, selected, trained or scored as known depends on labels that arrived afterwards, on the order of files
that arrived together, on kills, or on whether a run was live or a replay. Equal labels at once are labels with the samples.
"""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.pipeline.labels.laws import (
    DAYS,
    EVERYTHING,
    GAP,
    SPLIT,
    Delivery,
    drawn_labels,
    every_variant,
    killed_replay,
    known_by,
    replayed,
    with_samples,
)
from tests.pipeline.labels.pipelines import (
    ONE_BACKEND,
    ONLY_LATE,
    SELECTIONS,
    STRATEGIES,
    STRATEGY_KINDS,
    TRIGGER_KINDS,
    TRIGGERS,
    pipeline_of,
)
from tests.pipeline.late_labels import add_labels, arrive_later, at_once
from tests.pipeline.world import World

Worlds = Callable[..., World]

DRAWN = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=max(1, examples(5) // 10), deadline=None
)


def test_every_kind_of_policy_and_strategy_is_among_them() -> None:
    assert {block["kind"] for block in TRIGGERS.values()} == TRIGGER_KINDS
    assert {block["kind"] for block in STRATEGIES.values()} == STRATEGY_KINDS


@pytest.fixture
def late(world_of: Worlds) -> Callable[..., World]:
    """Makes a world with pipelines whose labels arrive later; label batches may arrive between two batches."""

    def make(*pipelines: dict[str, Any]) -> World:
        world = world_of(*pipelines, split=SPLIT)
        world.deliver(range(DAYS))
        arrive_later(world, GAP)
        return world

    return make


@pytest.mark.long
@every_variant()
def test_labels_that_arrive_after_a_batch_change_nothing_that_was_known_with_it(late: Callable[..., World], variant: str) -> None:
    world = late(pipeline_of(variant))

    @DRAWN
    @given(seed=st.integers(0, 10_000), until=st.integers(1, DAYS - 2))
    def law(seed: int, until: int) -> None:
        known = [label for label in drawn_labels(seed) if label.arrival <= until * GAP]
        found = []
        for number in range(2):
            Delivery.of([*known, *drawn_labels(seed + number, after=until * GAP)], number)(world)
            found.append(known_by(world, replayed(world, "late", f"{seed} {until} {number}"), until))
        assert found[0] == found[1]
        assert found[0]["triggers"]

    law()


@pytest.mark.long
@every_variant()
def test_neither_the_order_of_files_that_arrive_together_nor_a_kill_changes_anything(
    late: Callable[..., World], variant: str
) -> None:
    world = late(pipeline_of(variant))

    @DRAWN
    @given(seed=st.integers(0, 10_000), order=st.integers(0, 10_000), kill=st.integers(0, 12))
    def law(seed: int, order: int, kill: int) -> None:
        labels = drawn_labels(seed)
        Delivery.of(labels, order)(world)
        once = known_by(world, replayed(world, "late", f"{seed} {order} {kill} once"), EVERYTHING)
        Delivery.of(labels, order + 1)(world)
        again = known_by(world, killed_replay(world, "late", f"{seed} {order} {kill} again", kill), EVERYTHING)
        assert again == once

    law()


@pytest.mark.long
@every_variant("performance")
@pytest.mark.parametrize("seed", [3])
def test_live_is_replay_where_labels_arrive_later(late: Callable[..., World], variant: str, seed: int) -> None:
    world = late(pipeline_of(variant))
    Delivery.of(drawn_labels(seed), seed)(world)
    world.live_until_idle("late")
    live, replay = (known_by(world, run, EVERYTHING) for run in (world.run("late", "live"), replayed(world, "late", "again")))
    # The replay has finished, and scored its last interval too.
    assert set(live.pop("scores")) <= set(replay.pop("scores"))
    assert live == replay


@pytest.mark.long
@every_variant(without=ONLY_LATE)
def test_equal_labels_at_once_are_labels_with_the_samples(world_of: Worlds, variant: str) -> None:
    world = world_of(pipeline_of(variant), split=SPLIT)
    world.deliver(range(DAYS))
    before = with_samples(world, "with samples")
    labels = at_once(world, GAP)
    arrive_later(world, GAP)
    add_labels(world, labels)
    assert with_samples(world, "at once") == before


@pytest.mark.long
@pytest.mark.soak("labels")
@pytest.mark.parametrize("variant", [each for each in SELECTIONS if each not in ONE_BACKEND])
def test_both_backends_choose_the_same_where_labels_arrive_later(late: Callable[..., World], variant: str) -> None:
    world = late(*(pipeline_of(variant, backend, backend) for backend in ("arrow", "postgres")))
    Delivery.of(drawn_labels(5), 5)(world)
    arrow, postgres = (known_by(world, replayed(world, name, "late"), EVERYTHING) for name in ("arrow", "postgres"))
    assert postgres == arrow
    assert arrow["training_sets"]
