"""The champion of a run: brute force over the rule, and the cases it was made for."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.catalog.results.evaluations import EvaluationRow
from modyn_dagster.evaluation.composite.champion import champions

BEGIN = datetime(2024, 1, 1, tzinfo=UTC)


def cell(model: int, interval: int, value: float | None, *, seen: bool = False, metric: str = "accuracy") -> EvaluationRow:
    start = BEGIN + timedelta(days=interval)
    return EvaluationRow(model, model, start, start + timedelta(days=1), metric, 10, value, None, seen)


def crowned(cells: list[EvaluationRow], models: list[int], metric: str = "accuracy") -> list[int | None]:
    return [verdict.champion for verdict in champions(models, cells, metric)]


def test_a_better_model_takes_over_and_a_worse_one_does_not() -> None:
    cells = [cell(0, 5, 0.8), cell(1, 5, 0.7), cell(2, 5, 0.8), cell(3, 5, 0.9)]
    assert crowned(cells, [0, 1, 2, 3]) == [0, 0, 2, 3]
    losses = [replace(each, metric="log_loss") for each in cells]
    assert crowned(losses, [0, 1, 2, 3], "log_loss") == [0, 1, 1, 1]


def test_only_common_intervals_count_and_unseen_ones_first() -> None:
    assert crowned([cell(0, 1, 0.1), cell(1, 2, 0.9)], [0, 1]) == [0, 0]
    memorised = [cell(0, 1, 0.5), cell(1, 1, 1.0, seen=True)]
    assert crowned(memorised, [0, 1]) == [0, 1]
    assert crowned([*memorised, cell(0, 2, 0.5), cell(1, 2, 0.4)], [0, 1]) == [0, 0]


def test_reasons_name_the_scores_and_the_rival() -> None:
    first, second, third = champions([0, 1, 2], [cell(0, 1, 0.5), cell(1, 1, 0.75)], "accuracy")
    assert (first.promoted, first.reason) == (True, "the first model")
    assert second.reason == "mean accuracy 0.75 against 0.5 of the champion (trigger 0), over 1 intervals"
    assert third.reason == "no interval yet where it and the champion, trigger 1, both have a accuracy"
    assert champions([], [], "accuracy") == []


CELLS = st.lists(
    st.builds(cell, st.integers(0, 4), st.integers(0, 3), st.none() | st.sampled_from([0.0, 0.25, 0.5, 1.0]), seen=st.booleans()),
    max_size=20,
    unique_by=lambda each: (each.ordinal, each.interval_start),
)


@given(CELLS, st.randoms(use_true_random=False))
def test_champions_are_those_of_a_tournament_by_hand(cells, random):
    scored = {(each.ordinal, each.interval_start): each for each in cells if each.value is not None}
    champion, expected = 0, [0]
    for model in range(1, 5):
        pairs = [(scored[model, at], scored[champion, at]) for (who, at) in scored if who == model and (champion, at) in scored]
        fair = [pair for pair in pairs if not pair[0].seen_in_training and not pair[1].seen_in_training] or pairs
        if fair and sum(here.value - there.value for here, there in fair) >= 0:
            champion = model
        expected.append(champion)
    shuffled = random.sample(cells, len(cells))
    assert crowned(shuffled, random.sample(range(5), 5)) == expected
