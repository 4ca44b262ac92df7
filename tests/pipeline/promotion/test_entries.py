"""Pairs that enter a gate's test, against a plain recomputation from predictions, labels and ages of samples."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from modyn_dagster.data.split import EVALUATE
from modyn_dagster.evaluation.promotion.evidence import Pairs
from modyn_dagster.keys import ordinal_of
from modyn_dagster.pipeline.promotion.evidence import BatchEvidence, RunModels
from modyn_dagster.pipeline.promotion.predictions import GatePredictions
from tests.pipeline.late_labels import Label, add_labels, arrive_later, at_once, known_by_brute_force, replace_labels
from tests.pipeline.promotion.test_live_is_replay import QUICK
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, Content, amount

DAYS = 8
#: Triggers that are compared, and the batch after which their test begins.
NEW, OLD, BEGUN = 1, 0, 3


def pipeline(maturity: str | None) -> Content:
    content = amount("p", every=60, promotion=QUICK | {"min_coverage": 0.1})
    return content | {"evaluation": content["evaluation"] | ({"maturity": maturity} if maturity else {})}


def late(labels: Sequence[Label]) -> list[Label]:
    """Every second label three batches late, every seventh never."""
    return [replace(each, arrival=each.arrival + 3 * (each.key % 2)) for each in labels if each.key % 7]


def corrected(labels: Sequence[Label]) -> list[Label]:
    """The same labels, and two batches after each third one the opposite, known later."""
    return [
        *labels,
        *(
            replace(each, value=1 - each.value, arrival=each.arrival + 2, known_at=1)
            for each in labels
            if each.key % 3 == 0 and each.arrival + 2 < DAYS
        ),
    ]


def evidence_of(world: World) -> tuple[RunModels, GatePredictions]:
    run = world.run("p", "replay")
    return RunModels.read(world.platform, run, world.platform.view_of(run)), GatePredictions(ahead=False)


def entered_by_brute_force(world: World, labels: Sequence[Label], maturity: int, until: int) -> dict[int, list[tuple[int, int]]]:
    """Samples and labels that enter with each batch after the begin, from the definition; days of maturity."""
    view = world.platform.view(DATASET)
    times = {(batch.ordinal << 32) + row: time for batch in view.batches for row, time in enumerate(view.times(batch))}
    keys = np.array(sorted(times), np.uint64)
    sides = dict(zip(keys.tolist(), view.sides(keys).tolist(), strict=True))
    entered: dict[int, list[tuple[int, int]]] = {}
    seen: set[int] = set()
    for batch in range(BEGUN + 1, until + 1):
        known = known_by_brute_force(labels, batch)
        reached = max(time for key, time in times.items() if ordinal_of(key) <= batch)
        entered[batch] = []
        for key in sorted(times):
            is_old = times[key] + np.timedelta64(maturity, "D") <= reached
            if BEGUN < ordinal_of(key) <= batch and key in known and is_old and key not in seen and sides[key] == EVALUATE:
                entered[batch].append((key, known[key]))
                seen.add(key)
    return entered


def said(models: RunModels, trigger: int, keys: Sequence[int]) -> list[list[float]]:
    """Stored outputs of a model for some samples."""
    found = GatePredictions(ahead=False).of(models.contexts[trigger], BEGUN + 1, DAYS - 1)
    rows = {key: row for row, key in enumerate(found.keys.tolist())}
    return [found.outputs[rows[key]].tolist() for key in keys]


def check(world: World, labels: Sequence[Label], maturity: int) -> int:
    models, predictions = evidence_of(world)
    expected = entered_by_brute_force(world, labels, maturity, DAYS - 1)
    after = models.view.last_key_of(BEGUN)
    looks = range(BEGUN + 1, DAYS)

    def taken(since: int, until: int) -> Pairs:
        return BatchEvidence(models, predictions, until).pairs(NEW, OLD, after, BEGUN, since)

    for since in (BEGUN, *looks):
        for until in range(since + 1, DAYS):
            entries = [entry for batch in range(since + 1, until + 1) for entry in expected[batch]]
            pairs = taken(since, until)
            assert pairs.truth.tolist() == [label for _, label in entries], (since, until)
            assert pairs.candidate.tolist() == said(models, NEW, [key for key, _ in entries])
            assert pairs.incumbent.tolist() == said(models, OLD, [key for key, _ in entries])
    return sum(map(len, expected.values()))


@pytest.mark.soak("production")
@pytest.mark.parametrize("days", [0, 2])
def test_a_pair_enters_when_its_label_is_there_and_it_is_mature_and_no_correction_changes_it(
    world_of: Callable[..., World], days: int
) -> None:
    world = world_of(pipeline(f"{days}d" if days else None), split={"train": 0.5, "calibrate": 0.2, "evaluate": 0.3})
    world.deliver(range(DAYS))
    labels = late(at_once(world))
    arrive_later(world)
    add_labels(world, labels)
    world.replay("p")
    n = check(world, labels, days)
    assert n > 10
    replace_labels(world, corrected(labels))
    # Corrections of labels that entered change nothing; those that come before a pair is mature are what enters.
    assert check(world, corrected(labels), days) == n


def test_the_coverage_is_the_share_of_mature_samples_with_a_label(world_of: Callable[..., World]) -> None:
    world = world_of(pipeline("2d"))
    world.deliver(range(DAYS))
    labels = late(at_once(world))
    arrive_later(world)
    add_labels(world, labels)
    world.replay("p")
    models, predictions = evidence_of(world)
    view = world.platform.view(DATASET)
    for batch in range(BEGUN, DAYS):
        known = known_by_brute_force(labels, batch)
        reached = max(view.times(each)[-1] for each in view.batches if each.ordinal <= batch)
        mature = [
            (each.ordinal << 32) + row
            for each in view.batches
            for row, time in enumerate(view.times(each))
            if BEGUN < each.ordinal <= batch and time + np.timedelta64(2, "D") <= reached
        ]
        expected = sum(key in known for key in mature) / len(mature) if mature else 1.0
        found = BatchEvidence(models, predictions, batch).coverage(NEW, view.last_key_of(BEGUN))
        assert found == pytest.approx(expected)
