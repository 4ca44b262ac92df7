"""Nodes that are named as slow: those whose calls take much longer than the calls of the others, each once."""

from statistics import median

from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.distributed.on_ray.pace import SLOW, Pace

LEAST = 5.0
SECONDS = st.floats(0, 1000)
CALLS = st.lists(st.tuples(st.sampled_from("abc"), SECONDS), max_size=40)


def slow_by_brute_force(calls: list[tuple[str, float]], node: str) -> bool:
    own = [seconds for name, seconds in calls if name == node]
    others = [seconds for name, seconds in calls if name != node]
    if len(own) < 2 or len(others) < 2:
        return False
    return median(own) >= LEAST and median(own) > SLOW * median(others)


@given(calls=CALLS)
def test_a_node_is_named_once_as_soon_as_its_calls_take_three_times_as_long_as_those_of_others(
    calls: list[tuple[str, float]],
) -> None:
    pace, named, expected = Pace("f", LEAST), [], set()
    for number, (node, seconds) in enumerate(calls, 1):
        said = pace.took(node, seconds)
        if slow_by_brute_force(calls[:number], node) and node not in expected:
            expected.add(node)
            assert said is not None
            assert said.startswith(f"node {node} is slow: calls of f take ")
            named.append(node)
        else:
            assert said is None
    assert set(named) == expected


@given(calls=CALLS, node=st.sampled_from("abcd"), seconds=SECONDS)
def test_a_call_under_way_is_compared_with_the_finished_ones_of_other_nodes(
    calls: list[tuple[str, float]], node: str, seconds: float
) -> None:
    pace = Pace("f", LEAST)
    named = {name for name, taken in calls if pace.took(name, taken) is not None}
    others = [taken for name, taken in calls if name != node]
    is_slow = len(others) >= 2 and seconds >= LEAST and seconds > SLOW * median(others)
    assert (pace.runs(node, seconds) is not None) == (is_slow and node not in named)


@given(calls=CALLS, seconds=SECONDS)
def test_nothing_is_overdue_before_other_calls_are_known(calls: list[tuple[str, float]], seconds: float) -> None:
    pace = Pace("f", LEAST)
    for node, taken in calls:
        pace.took(node, taken)
    known = [taken for _, taken in calls]
    assert pace.is_overdue(seconds) == (len(known) >= 2 and seconds >= LEAST and seconds > SLOW * median(known))


def test_equal_nodes_are_never_slow_however_long_their_calls_take() -> None:
    pace = Pace("f", LEAST)
    assert [pace.took(node, 1000.0) for node in "abcabc"] == [None] * 6
    assert pace.runs("a", 2000.0) is None
