"""Every kind of interval against its definition, written out for single times."""

from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.evaluation import Interval, anchor_of, currently_active, generate_intervals
from modyn_dagster.spec.evaluation import EvaluationSpec
from modyn_dagster.spec.load import parse_spec

Pair = tuple[int, int]
SECONDS = st.integers(1, 30)
SPAN = st.tuples(st.integers(-100, 100), st.integers(0, 120)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@st.composite
def trainings(draw: st.DrawFn) -> list[Pair]:
    """Models as a pipeline trains them: each begins after the last sample of the one before it."""
    edges = sorted(draw(st.lists(st.integers(-50, 200), max_size=12, unique=True)))
    return list(zip(edges[::2], edges[1::2], strict=False))


def spans(found: list[Interval[int]]) -> list[Pair]:
    return [(interval.start, interval.end) for interval in found]


@given(SPAN, SECONDS, SECONDS)
def test_sliding_intervals_begin_at_every_stride_and_are_cut_at_the_end(span: Pair, every: int, length: int) -> None:
    start, end = span
    found = generate_intervals({"kind": "sliding", "every": f"{every}s", "length": f"{length}s"}, start, end)
    assert spans(found) == [(at, min(at + length, end)) for at in range(start, end, every)]


@given(SPAN, SECONDS)
def test_sliding_by_its_own_length_is_tumbling(span: Pair, every: int) -> None:
    sliding = {"kind": "sliding", "every": f"{every}s", "length": f"{every}s"}
    assert generate_intervals(sliding, *span) == generate_intervals({"every": f"{every}s"}, *span)


@given(SPAN, SECONDS, SECONDS, st.integers(-300, 300))
def test_a_grid_of_sliding_intervals_covers_each_time_as_often_as_length_holds_strides(
    span: Pair, every: int, times: int, origin: int
) -> None:
    spec = {"kind": "sliding", "every": every, "length": every * times, "start": datetime.fromtimestamp(origin, UTC)}
    found = generate_intervals(spec, *span, cut=False)
    assert all((interval.start - origin) % every == 0 and interval.start >= origin for interval in found)
    for time in range(max(span[0], origin + every * times), span[1]):
        assert sum(interval.start <= time < interval.end for interval in found) == times


@given(SPAN, SECONDS, st.integers(0, 20), st.integers(1, 20))
def test_periodic_intervals_lie_around_their_anchors(span: Pair, every: int, before: int, after: int) -> None:
    found = generate_intervals({"kind": "periodic", "every": every, "before": before, "after": after}, *span)
    assert found == [Interval(t - before, t + after, t, None) for t in range(*span, every)]


@given(trainings())
def test_between_triggers_every_trained_time_lies_in_the_interval_of_its_model_alone(training: list[Pair]) -> None:
    found = generate_intervals({"kind": "between_triggers"}, -50, 201, training)
    assert len(found) == len(training)
    for number, (first, last) in enumerate(training):
        before = first if number == 0 else training[number - 1][1] + 1
        assert spans(found)[number] == (before, last + 1)
        assert [i for i, interval in enumerate(found) if interval.start <= last < interval.end] == [number]
    assert all(interval.model is None for interval in found)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)).map(lambda p: (min(p), max(p))), max_size=8))
def test_late_data_make_no_time_count_twice_between_triggers(training: list[Pair]) -> None:
    found = generate_intervals({"kind": "between_triggers"}, 0, 31, training)
    assert len(found) == len(training)
    for time in range(31):
        assert sum(interval.start <= time < interval.end for interval in found) <= 1


@given(SPAN, trainings(), SECONDS)
def test_offsets_follow_their_definition(span: Pair, training: list[Pair], distance: int) -> None:
    offsets: list[Any] = ["-inf", f"-{distance}s", 0, f"{distance}s", "inf"]
    found = generate_intervals({"kind": "offsets", "offsets": offsets}, *span, training)
    expected = []
    for model, (first, last) in enumerate(training):
        after = last + 1
        earlier = [(min(span[0], first), first), (first - distance, first)]
        later = [(after, after + distance), (after, max(after, span[1]))]
        expected += [Interval(start, end, start, model) for start, end in [*earlier, (first, after), *later]]
    assert found == expected


@pytest.mark.parametrize("same", [[0], ["0"]])
def test_offsets_are_written_in_several_ways(same: list[Any]) -> None:
    training = [(3, 8)]
    assert generate_intervals({"kind": "offsets", "offsets": same}, 0, 20, training) == [Interval(3, 9, 3, 0)]
    plus = generate_intervals({"kind": "offsets", "offsets": ["+5s", float("inf"), "-inf"]}, 0, 20, training)
    assert spans(plus) == [(9, 14), (9, 20), (0, 3)]


def test_fixed_intervals_are_taken_as_they_are_listed() -> None:
    listed = [[date(2020, 1, 2), "2020-01-05"], [datetime(2020, 1, 1), np.datetime64("2020-01-02T12:00")], [0, 60]]
    found = generate_intervals({"kind": "fixed", "intervals": listed}, np.datetime64("2020-01-03"), np.datetime64("2020-01-04"))
    expected = [("2020-01-02", "2020-01-05"), ("2020-01-01", "2020-01-02T12"), ("1970-01-01", "1970-01-01T00:01")]
    assert [(i.start, i.end) for i in found] == [(np.datetime64(a, "us"), np.datetime64(b, "us")) for a, b in expected]
    assert spans(generate_intervals({"kind": "fixed", "intervals": [[5, 9], [0, 7]]}, 0, 1)) == [(5, 9), (0, 7)]


@given(SPAN, SECONDS, SECONDS, trainings())
def test_the_anchor_is_start_centre_or_end_of_every_kind(span: Pair, every: int, length: int, training: list[Pair]) -> None:
    specs: list[dict[str, Any]] = [
        {"kind": "tumbling", "every": every},
        {"kind": "sliding", "every": every, "length": length},
        {"kind": "periodic", "every": every, "before": length, "after": 1},
        {"kind": "between_triggers"},
        {"kind": "fixed", "intervals": [[span[0], span[0] + every]]},
        {"kind": "offsets", "offsets": ["-inf", -every, 0, every]},
    ]
    for spec in specs:
        for side, weight in (("start", 0), ("center", 1), ("end", 2)):
            for i in generate_intervals(spec | {"anchor": side}, *span, training):
                assert i.anchor == i.start + (i.end - i.start) * weight // 2
        for i in generate_intervals(spec, *span, training):
            assert i.anchor == (i.start + length if spec["kind"] == "periodic" else i.start)


@given(SPAN, SECONDS, SECONDS, st.sampled_from(["start", "center", "end"]), trainings())
def test_seconds_and_microseconds_give_the_same_intervals(
    span: Pair, every: int, length: int, anchor: str, training: list[Pair]
) -> None:
    """All but the last unit: ends of what was trained on lie a second behind it for integers, a microsecond for times."""

    def of(seconds: int) -> np.datetime64:
        return np.datetime64(seconds * 1_000_000, "us")

    for spec in ({"kind": "sliding", "every": every, "length": 2 * length}, {"kind": "offsets", "offsets": ["-inf", -every]}):
        whole = generate_intervals(spec | {"anchor": anchor}, *span, training)
        fine = generate_intervals(spec | {"anchor": anchor}, of(span[0]), of(span[1]), [(of(a), of(b)) for a, b in training])
        assert [(i.start, i.end, i.model) for i in fine] == [(of(i.start), of(i.end), i.model) for i in whole]
        assert all(abs(f.anchor - of(w.anchor)) < np.timedelta64(1, "s") for f, w in zip(fine, whole, strict=True))
    times = generate_intervals({"kind": "between_triggers"}, of(span[0]), of(span[1]), [(of(a), of(b)) for a, b in training])
    assert [i.end for i in times] == [of(last) + np.timedelta64(1, "us") for _, last in training]


@given(SPAN, SECONDS, SECONDS, st.integers(0, 50))
def test_uncut_an_interval_is_the_same_when_more_data_come(span: Pair, every: int, length: int, more: int) -> None:
    spec = {"kind": "sliding", "every": every, "length": length, "anchor": "center"}
    before = generate_intervals(spec, *span, cut=False)
    assert generate_intervals(spec, span[0], span[1] + more, cut=False)[: len(before)] == before
    assert all(interval.end - interval.start == length for interval in before)


@given(SPAN, SECONDS, SECONDS, st.sampled_from(["start", "center", "end", None]))
def test_the_anchor_can_be_told_from_the_interval_alone(span: Pair, every: int, length: int, anchor: str | None) -> None:
    spec = {"kind": "periodic", "every": every, "before": length, "after": every, "anchor": anchor}
    block = parse_spec({"intervals": spec}, EvaluationSpec, source="test").intervals
    assert all(anchor_of(block, i.start, i.end) == i.anchor for i in generate_intervals(block, *span))


def test_published_fault_a_trigger_of_one_timestamp_has_an_interval_that_holds_its_samples() -> None:
    """An interval that ends at its last sample's time, half-open, would be empty for a model trained at one time."""
    [interval] = generate_intervals({"kind": "between_triggers"}, 7, 8, [(7, 7)])
    assert interval.start <= 7 < interval.end


def test_published_fault_samples_at_the_very_last_time_between_triggers_are_judged_once() -> None:
    found = generate_intervals({"kind": "between_triggers"}, 0, 21, [(0, 10), (10, 20)])
    assert spans(found) == [(0, 11), (11, 21)]
    assert [sum(i.start <= time < i.end for i in found) for time in (0, 10, 11, 20)] == [1, 1, 1, 1]


@pytest.mark.parametrize("kind", ["tumbling", "sliding"])
def test_published_fault_the_end_of_an_interval_belongs_to_the_next_one_alone(kind: str) -> None:
    spec: dict[str, Any] = {"kind": kind, "every": "10s"} | ({"length": "10s"} if kind == "sliding" else {})
    found = generate_intervals(spec, 0, 31)
    assert [[i.start for i in found if i.start <= time < i.end] for time in (9, 10, 20, 30)] == [[0], [10], [20], [30]]


def test_published_fault_offsets_can_be_configured_and_judge_the_training_interval_itself() -> None:
    """The published configuration refuses offsets in every combination, and its name for the model choice never matches."""
    content = {"intervals": {"kind": "offsets", "offsets": ["-inf", 0, "1y", "inf"]}, "metrics": ["accuracy"]}
    block = parse_spec(content, EvaluationSpec, source="test").intervals
    found = generate_intervals(block, 0, 100, [(10, 20), (30, 40)])
    assert [i.model for i in found] == [0] * 4 + [1] * 4
    assert [(i.start, i.end) for i in found if i.model == 1][1] == (30, 41)


def test_published_fault_a_model_that_ends_exactly_at_the_anchor_is_not_active() -> None:
    """With a centred anchor as with one at the start: strictly before."""
    anchors = [i.anchor for i in generate_intervals({"every": "10s", "anchor": "center"}, 0, 30)]
    assert anchors == [5, 15, 25]
    assert currently_active([5, 15], anchors).tolist() == [-1, 0, 1]
