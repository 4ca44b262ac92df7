from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.ingestion.sources.files import natural_key


def test_numbers_in_names_are_numbers_and_folders_come_one_by_one() -> None:
    ordered = ["1.csv", "2.csv", "10.csv", "a/2", "a/10/1", "a/10/02", "b", "b2_9", "b2_10", "b10"]
    for shuffled in (ordered, ordered[::-1], ordered[5:] + ordered[:5]):
        assert sorted(shuffled, key=natural_key) == ordered


@given(st.lists(st.text(alphabet="a01²9/_.", min_size=1, max_size=8), unique=True), st.data())
def test_any_names_have_one_order(names: list[str], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(names))
    assert sorted(shuffled, key=natural_key) == sorted(names, key=natural_key)


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_numbers_are_ordered_by_value(one: int, other: int) -> None:
    assert (natural_key(f"x{one}.csv") < natural_key(f"x{other}.csv")) == (one < other)
