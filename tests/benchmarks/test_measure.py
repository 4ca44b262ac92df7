import gc
import json
import weakref
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.measure import (
    Contender,
    Machine,
    Rounds,
    Run,
    Spread,
    anonymous_bytes,
    count_foreign,
    foreign_runnable,
    interleave,
    timed,
)
from benchmarks.report import Figure, busyness, short, with_least, write_json

positive = st.floats(1e-3, 1e3)


@given(st.lists(positive, min_size=1, max_size=9))
def test_a_spread_is_the_median_between_the_smallest_and_the_largest(values):
    spread = Spread.of(values)
    assert spread.value == pytest.approx(np.median(values))
    assert spread.min == min(values) <= spread.value <= max(values) == spread.max


@given(st.lists(st.tuples(positive, positive), min_size=1, max_size=9))
def test_a_ratio_is_paired_inside_each_round(seconds):
    rounds = Rounds({"a": [Run(3, a) for a, _ in seconds], "b": [Run(5, b) for _, b in seconds]})
    expected = [(3 / a) / (5 / b) for a, b in seconds]
    assert rounds.ratio("a", "b").value == pytest.approx(np.median(expected))


def test_a_machine_that_slows_everything_down_changes_no_ratio():
    slow = [1, 10, 1, 3, 7]
    rounds = Rounds({"a": [Run(1, s) for s in slow], "b": [Run(1, 2.0 * s) for s in slow]})
    assert rounds.ratio("a", "b") == Spread(2.0, 2.0, 2.0)


def test_contenders_take_turns_and_each_round_begins_with_another_one():
    seen: list[str] = []

    def contender(name: str) -> Contender:
        def run() -> Run:
            seen.append(name)
            return Run(1, 1)

        return run

    machine = Machine()
    rounds = interleave({name: contender(name) for name in "abc"}, machine, rounds=5, warm_up=1)
    assert "".join(seen) == "abcbcacababcbcacab"
    assert all(len(runs) == 5 for runs in rounds.runs.values())
    assert len(machine.load) == len(machine.foreign) == 7


def test_fewer_than_five_rounds_are_refused():
    with pytest.raises(ValueError, match="at least 5"):
        interleave({}, Machine(), rounds=4)


def test_a_timed_contender_counts_its_units():
    run = timed(12, lambda: None)()
    assert run.units == 12
    assert run.seconds >= 0


def test_foreign_processes_are_the_runnable_ones_that_do_not_descend_from_this_one():
    processes = {
        1: ("S", 0),
        10: ("R", 1),
        11: ("R", 10),
        12: ("S", 10),
        13: ("R", 12),
        20: ("R", 1),
        21: ("S", 1),
        22: ("R", 21),
    }
    assert count_foreign(processes, own=10) == 2
    assert count_foreign(processes, own=21) == 4
    assert foreign_runnable() >= 0


def test_anonymous_memory_grows_with_what_is_touched():
    before = anonymous_bytes()
    # Of its own: an array may get memory that was touched and let go of before.
    with mmap(-1, 64 << 20, MAP_PRIVATE | MAP_ANONYMOUS) as touched:
        touched.write(bytes([1]) * len(touched))
        assert anonymous_bytes() - before >= 60 << 20


def test_json_maps_each_id_to_five_fields(tmp_path):
    figures = [
        Figure("F1", "what", Spread(4.5, 4.0, 5.0), "x", 4.0),
        Figure("F6.lance", "what", None, "x", 100.0, note="skipped: not installed"),
        *busyness(Machine([1.0, 3.0, 2.0], [0, 1, 0])),
    ]
    write_json(tmp_path / "new" / "out.json", figures)
    assert json.loads((tmp_path / "new" / "out.json").read_text()) == {
        "F1": {"value": 4.5, "unit": "x", "min": 4.0, "max": 5.0, "goal": 4.0},
        "F6.lance": {"value": None, "unit": "x", "min": None, "max": None, "goal": 100.0},
        "load": {"value": 2.0, "unit": "processes", "min": 1.0, "max": 3.0, "goal": None},
        "foreign": {"value": 0.0, "unit": "processes", "min": 0.0, "max": 1.0, "goal": None},
    }


@pytest.mark.parametrize(
    ("value", "goal", "at_most", "reached"),
    [
        (4.0, 4.0, False, True),
        (3.9, 4.0, False, False),
        (5.0, 5.0, True, True),
        (5.1, 5.0, True, False),
        (1.0, None, False, None),
    ],
)
def test_a_goal_is_a_lower_limit_or_an_upper_one(value, goal, at_most, reached):
    assert Figure("F", "", Spread(value, value, value), "x", goal, at_most).reached is reached


def test_a_figure_of_parts_is_the_least_of_them_over_its_goal():
    parts = [
        Figure("F9.warm", "", Spread(9.0, 6.0, 12.0), "x", 6.0),
        Figure("F9.late", "", Spread(4.0, 2.0, 8.0), "ms", 5.0, at_most=True),
        Figure("F9.nothing", "", Spread(0.0, 0.0, 0.0), "MB", 5.0, at_most=True),
        Figure("F9.missing", "", None, "x", 1.0),
        Figure("F9.informs", "", Spread(0.1, 0.1, 0.1), "x"),
        Figure("F3.4GiB", "", Spread(0.1, 0.1, 0.1), "x", 0.6),
    ]
    *before, whole = with_least("F9", parts)
    assert before == parts
    assert (whole.id, whole.spread, whole.goal) == ("F9", Spread(1.25, 0.625, 2.5), 1.0)
    assert whole.note == "3 of 4 parts were measured"
    assert list(with_least("F6", parts[3:]))[-1].spread is None


@pytest.mark.soak("benchmarks")
@pytest.mark.long
def test_garbage_of_before_and_between_is_gone_when_a_repetition_begins_and_none_is_collected_inside():
    alive, enabled = list[int](), list[bool]()

    class Cycle:
        def __init__(self) -> None:
            self.me = self
            made.append(weakref.ref(self))

    def run() -> Run:
        enabled.append(gc.isenabled())
        alive.append(sum(each() is not None for each in made))
        Cycle()
        return Run(1, 1)

    made: list[weakref.ref[Cycle]] = []
    Cycle()
    interleave({"a": run, "b": run}, Machine())
    assert (alive, enabled) == ([0] * 12, [False] * 12)
    assert gc.isenabled()


@pytest.mark.soak("benchmarks")
@pytest.mark.long
def test_nothing_stays_frozen_when_a_repetition_fails():
    def fails() -> Run:
        assert gc.get_freeze_count() > 0
        raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError, match="full"):
        interleave({"a": fails}, Machine())
    assert gc.get_freeze_count() == 0


@pytest.mark.parametrize(
    ("value", "text"), [(0.0123, "0.0123"), (999, "999"), (73_100, "73.1 k"), (9.26e7, "92.6 M"), (2e9, "2 G")]
)
def test_numbers_are_short(value, text):
    assert short(value) == text
