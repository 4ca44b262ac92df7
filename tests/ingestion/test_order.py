from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.ingestion.order import natural_key


def test_numbers_in_names_are_numbers_and_folders_come_one_by_one() -> None:
    ordered = ["1.csv", "2.csv", "10.csv", "a/2", "a/10/1", "a/10/02", "a 1/x", "b", "b2_9", "b2_10", "b10"]
    assert sorted(reversed(ordered), key=natural_key) == sorted(ordered, key=natural_key)
    assert [name for name in sorted(ordered, key=natural_key) if name[0] == "b"] == ["b", "b2_9", "b2_10", "b10"]
    assert sorted(["10.csv", "2.csv", "1.csv"], key=natural_key) == ["1.csv", "2.csv", "10.csv"]


@given(st.lists(st.text(alphabet="a01²9/_.", min_size=1, max_size=8), unique=True))
def test_any_names_have_one_order(names: list[str]) -> None:
    ordered = sorted(names, key=natural_key)
    assert ordered == sorted(ordered[::-1], key=natural_key)
    assert len({natural_key(name)[1] for name in names}) == len(names)


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_numbers_are_ordered_by_value(one: int, other: int) -> None:
    assert (natural_key(f"x{one}.csv") < natural_key(f"x{other}.csv")) == (one < other)
