"""Names, parameters and tags stay within MLflow's limits."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from mlflow.entities import Param

from modyn_dagster.reporting.mlflow.client import open_client
from modyn_dagster.reporting.mlflow.content import flatten
from modyn_dagster.reporting.mlflow.series import interval_table, milliseconds, time_zero
from tests.examples import examples
from tests.reporting.story import year

# Postgres has no NUL in text, so a spec has none either.
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
NAMES = TEXT | st.sampled_from(["/", "..", "a/../b", "n" * 300])
SETTINGS: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT | st.just("long " * 2000),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=examples(40), deadline=None)
@given(tree=st.dictionaries(NAMES, SETTINGS, max_size=4))
def test_mlflow_takes_every_setting_as_it_is(mlflow_uri: str, tree: dict[str, Any]) -> None:
    client, flat = open_client(mlflow_uri), flatten(tree)
    run_id = client.create_run("0").info.run_id
    client.log_batch(run_id, params=[Param(name, value) for name, value in flat.items()])
    assert client.get_run(run_id).data.params == flat


def test_settings_keep_their_names_and_values() -> None:
    tree = {"a": {"b": {"c": 1}, "d": "text"}, "e": [1, "x"], "f": None, "g": True, "h": {}, "i(j)": 0.5}
    flat = flatten(tree)
    assert flat == {"a.b.c": "1", "a.d": "text", "e": '[1, "x"]', "f": "null", "g": "true", "h": "{}", "i_j_": "0.5"}
    assert json.loads(flat["e"]) == [1, "x"]


@given(st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 1, 1)))
def test_timestamps_of_a_run_are_never_negative(start: datetime) -> None:
    first = (start.replace(tzinfo=UTC), start.replace(tzinfo=UTC) + timedelta(days=1))
    later = milliseconds(first[1]) - milliseconds(time_zero([first]))
    assert milliseconds(first[0]) - milliseconds(time_zero([first])) >= 0
    assert later >= 86_400_000


def test_milliseconds_round_down_on_both_sides_of_1970() -> None:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    microseconds = [-1001, -1000, -1, 0, 1, 999, 1000]
    assert [milliseconds(epoch + timedelta(microseconds=n)) for n in microseconds] == [-2, -1, -1, 0, 0, 0, 1]


def test_every_step_has_its_interval() -> None:
    intervals = [(year(0), year(1)), (year(3), year(4))]
    assert interval_table(intervals) == [
        {"step": 0, "start": year(0).isoformat(), "end": year(1).isoformat()},
        {"step": 1, "start": year(3).isoformat(), "end": year(4).isoformat()},
    ]
    assert time_zero([]) == datetime(1970, 1, 1, tzinfo=UTC)
