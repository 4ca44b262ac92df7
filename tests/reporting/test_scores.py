"""Composite series of a run against a brute-force reading of their definition."""

from datetime import UTC, datetime
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.catalog.results.evaluations import EvaluationRow
from modyn_dagster.catalog.results.models import ModelRow
from modyn_dagster.reporting.scores import (
    NO_ACTIVE_MODEL,
    NOT_EVALUATED,
    IntervalScore,
    composite_series,
    mean_score,
)
from tests.reporting.story import year

ORDINALS = st.lists(st.integers(0, 40), unique=True, max_size=6).map(sorted)


def a_model(ordinal: int, train_end: datetime) -> ModelRow:
    return ModelRow(ordinal, 1, ordinal, ordinal, f"m{ordinal}", None, 10, year(0), train_end, {}, [], [], year(200))


def a_cell(ordinal: int, start: int, value: float | None, metric: str = "accuracy") -> EvaluationRow:
    undefined = "one class only" if value is None else None
    return EvaluationRow(ordinal, ordinal, year(start), year(start + 1), metric, start, value, undefined, ordinal > start)


@st.composite
def matrices(draw: st.DrawFn) -> tuple[list[ModelRow], list[EvaluationRow]]:
    """Models with rising ordinals and last training times, and some of their cells; some undefined."""
    ordinals = draw(ORDINALS)
    ends = sorted(draw(st.lists(st.integers(0, 12), min_size=len(ordinals), max_size=len(ordinals))))
    models = [a_model(ordinal, year(end)) for ordinal, end in zip(ordinals, ends, strict=True)]
    value = st.none() | st.floats(0, 1)
    places = [(ordinal, start) for ordinal in ordinals for start in range(12)]
    kept = draw(st.lists(st.sampled_from(places), unique=True)) if places else []
    return models, [a_cell(ordinal, start, draw(value)) for ordinal, start in sorted(kept)]


def expected(models: list[ModelRow], cells: list[EvaluationRow], *, trained: bool) -> list[tuple[object, ...]]:
    """The definition, read aloud: for each interval, the newest model whose training ended before it, or the next one."""
    series: list[tuple[object, ...]] = []
    for start in sorted({cell.interval_start for cell in cells}):
        before = [model for model in models if model.train_end < start]
        chosen: ModelRow | None = before[-1] if before else None
        if trained:
            later = models[len(before) :]
            chosen = later[0] if later else models[-1]
        if chosen is None:
            series.append((start, None, None, NO_ACTIVE_MODEL))
            continue
        cell = next((c for c in cells if c.ordinal == chosen.ordinal and c.interval_start == start), None)
        series.append((start, chosen.ordinal, cell.value if cell else None, cell.undefined if cell else NOT_EVALUATED))
    return series


def read(scores: tuple[IntervalScore, ...]) -> list[tuple[object, ...]]:
    return [(score.start, score.trigger, score.value, score.reason) for score in scores]


@given(matrices())
def test_series_agree_with_the_definition_read_aloud(matrix: tuple[list[ModelRow], list[EvaluationRow]]) -> None:
    models, cells = matrix
    scores = composite_series(models, cells, "accuracy")
    assert read(scores.active) == expected(models, cells, trained=False)
    assert read(scores.trained) == expected(models, cells, trained=True)


@given(matrices())
def test_a_score_has_a_value_or_a_reason_and_intervals_come_once_and_in_order(
    matrix: tuple[list[ModelRow], list[EvaluationRow]],
) -> None:
    scores = composite_series(*matrix, "accuracy")
    for series in (scores.active, scores.trained):
        assert all((score.value is None) != (score.reason is None) for score in series)
        assert all(one.interval < other.interval for one, other in pairwise(series))


def test_only_cells_of_the_asked_metric_count() -> None:
    cells = [a_cell(0, 3, 0.5), a_cell(0, 3, 0.9, "f1"), a_cell(0, 4, 0.8, "f1")]
    scores = composite_series([a_model(0, year(1))], cells, "f1")
    assert read(scores.active) == [(year(3), 0, 0.9, None), (year(4), 0, 0.8, None)]


def test_a_model_that_saw_the_intervals_first_moment_is_not_active_yet() -> None:
    scores = composite_series([a_model(0, year(3))], [a_cell(0, 3, 0.5), a_cell(0, 4, 0.6)], "accuracy")
    assert [score.value for score in scores.active] == [None, 0.6]
    assert [score.value for score in scores.trained] == [0.5, 0.6]


def test_a_run_without_cells_has_no_intervals() -> None:
    scores = composite_series([a_model(0, year(3))], [], "accuracy")
    assert scores.active == scores.trained == ()
    assert mean_score(scores.active).value is None


def test_the_mean_leaves_out_intervals_without_a_score() -> None:
    models = [a_model(0, year(1))]
    scores = composite_series(models, [a_cell(0, 0, 0.1), a_cell(0, 3, 0.5), a_cell(0, 4, None), a_cell(0, 5, 1.0)], "accuracy")
    assert mean_score(scores.active).value == 0.75


def test_json_has_times_in_utc() -> None:
    score = composite_series([a_model(0, year(1))], [a_cell(0, 3, 0.5)], "accuracy").active[0]
    assert score.to_json() == {
        "start": year(3).astimezone(UTC).isoformat(),
        "end": year(4).isoformat(),
        "value": 0.5,
        "reason": None,
        "n_samples": 3,
        "trigger": 0,
        "seen_in_training": False,
        "low": None,
        "high": None,
    }
