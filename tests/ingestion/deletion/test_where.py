"""The language of ``--where``, held to a brute-force reading of the same conditions; and what it refuses."""

from datetime import datetime, timedelta
from operator import eq, ge, gt, le, lt, ne
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.catalog.datasets import Column, DatasetRow
from modyn_dagster.errors import ConfigError
from modyn_dagster.ingestion.deletion.fields import fields_of
from modyn_dagster.ingestion.deletion.keys import keys_where
from modyn_dagster.ingestion.deletion.where import parse_where
from modyn_dagster.spec.dataset import DatasetSpec
from tests.examples import examples
from tests.ingestion.world import World, dataset_spec

SPEC = dataset_spec(attributes=["user", "score", "country", "paid"])
COUNTRIES = ["CH", "it's", 'a "b"', "and"]
SAMPLES: list[dict[str, Any]] = [
    {
        "time": datetime(2020, 1, 1) + timedelta(hours=7 * i),
        "label": ("spam", "ham", "not sure")[i % 3],
        "user": i % 5,
        "score": None if i % 7 == 0 else i / 4,
        "country": COUNTRIES[i % 4],
        "paid": i % 2 == 0,
    }
    for i in range(30)
]
OPERATORS = {"=": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}


def csv_text() -> str:
    def cell(value: Any) -> str:
        if value is None:
            return ""
        return '"' + str(value).replace('"', '""') + '"' if isinstance(value, str) else str(value).lower()

    rows = [",".join([sample["time"].isoformat(), *(cell(v) for k, v in sample.items() if k != "time")]) for sample in SAMPLES]
    return "\n".join(["time,label,user,score,country,paid", *rows, ""])


def found(world: World, spec: DatasetSpec, text: str) -> list[int]:
    dataset = world.dataset(spec)
    with transaction(world.engine) as conn:
        return [int(key) for key in keys_where(conn, spec, dataset, text)]


def quoted(text: str, mark: str) -> str:
    return mark + text.replace(mark, mark * 2) + mark


@st.composite
def comparisons(draw: st.DrawFn) -> tuple[str, Any]:
    """A comparison as text, and a function of a sample: True, False, or None where Postgres says null."""
    name = draw(st.sampled_from(["time", "label", "user", "score", "country", "paid"]))
    values = [sample[name] for sample in SAMPLES if sample[name] is not None]
    chosen = draw(st.lists(st.sampled_from(values), min_size=1, max_size=3))
    mark = draw(st.sampled_from("'\""))

    def shown(value: Any) -> str:
        if isinstance(value, bool | int | float):
            return str(value)
        return quoted(value.isoformat(" ") if isinstance(value, datetime) else value, mark)

    field = name if name in ("time", "label") else f"attributes.{name}"
    if draw(st.booleans()):
        negated = draw(st.booleans())
        text = f"{field} {'not ' * negated}in ({','.join(map(shown, chosen))})"
        return text, lambda sample: None if sample[name] is None else (sample[name] in chosen) != negated
    sign = draw(st.sampled_from(list(OPERATORS) if name not in ("label", "paid", "country") else ["=", "!="]))
    text = f"{field}{sign}{shown(chosen[0])}"
    return text, lambda sample: None if sample[name] is None else OPERATORS[sign](sample[name], chosen[0])


def joined(parts: tuple[tuple[str, Any], tuple[str, Any]], word: str) -> tuple[str, Any]:
    (left, holds_left), (right, holds_right) = parts

    def both(sample: Any) -> bool | None:
        found = {holds_left(sample), holds_right(sample)}
        decisive = word == "or"
        return decisive if decisive in found else None if None in found else not decisive

    return f"({left} {word.upper()} {right})", both


def negated(part: tuple[str, Any]) -> tuple[str, Any]:
    text, holds = part
    return f"not {text}", lambda sample: None if holds(sample) is None else not holds(sample)


conditions = st.recursive(
    comparisons(),
    lambda inner: st.one_of(
        inner.map(negated),
        st.builds(joined, st.tuples(inner, inner), st.sampled_from(["and", "or"])),
    ),
    max_leaves=6,
)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(condition=conditions)
def test_a_condition_finds_what_reading_it_sample_by_sample_finds(world: World, condition: tuple[str, Any]) -> None:
    if not world.states(SPEC):
        world.write("a.csv", csv_text())
        assert world.run_import(SPEC).failed == []
    text, holds = condition
    assert found(world, SPEC, text) == [i for i, sample in enumerate(SAMPLES) if holds(sample) is True]


def test_and_binds_tighter_than_or(world: World) -> None:
    world.write("a.csv", csv_text())
    world.run_import(SPEC)
    text = "label = spam or attributes.user = 0 and attributes.paid = true"
    expected = [i for i, s in enumerate(SAMPLES) if s["label"] == "spam" or (s["user"] == 0 and s["paid"])]
    assert found(world, SPEC, text) == expected


def test_integer_classes_and_targets_have_an_order(world: World) -> None:
    world.write("a.csv", "time,label\n2020-01-01,3\n2020-01-02,1\n2020-01-03,2\n")
    classes = dataset_spec()
    world.run_import(classes)
    assert found(world, classes, "label >= 2 and time < 2020-01-03") == [0]
    label = {"kind": "target", "from": {"source": "column", "column": "label"}}
    targets = dataset_spec(name="t", label=label)
    world.run_import(targets)
    assert found(world, targets, "target < 2.5") == [1, 2]


def test_attributes_that_are_times_are_compared_as_times(world: World) -> None:
    times = [datetime(2020, 1, day, 12) for day in (1, 2, 3)]
    pq.write_table(pa.table({"time": times, "seen": [times[2], None, times[0]], "label": [0, 1, 0]}), world.root / "a.parquet")
    spec = dataset_spec(format={"kind": "parquet"}, attributes=["seen"])
    assert world.run_import(spec).failed == []
    assert found(world, spec, "attributes.seen > 2020-01-02") == [0]
    assert found(world, spec, "attributes.seen <= '2020-01-01T13:00:00+01:00'") == [2]


DATASET = DatasetRow(
    1, "d", {}, (Column("user", "int64"), Column("score", "float64"), Column("country", "string"), Column("paid", "bool")), (), 0
)
FIELDS = fields_of(SPEC, DATASET) | {
    "label": fields_of(SPEC, DatasetRow(1, "d", {}, (), ("spam", "ham"), 0))["label"],
}

REFUSED = {
    "": "position 1: must be a field of the dataset: time, label, attributes.user",
    "label": "position 6: must be one of = != < <= > >= in (found 'the end')",
    "label =": "position 8: must be a value",
    "label = eggs": "position 9: must be a class of the dataset: spam, ham (found 'eggs')",
    "label < spam": "position 7: must be one of = != in: there is no order of its values",
    "target = 1": "position 1: must be a field",
    "label = spam label = ham": "position 14: must end here, or go on with `and` or `or` (found 'label')",
    "(label = spam": "position 14: must be ')'",
    "label = spam)": "position 13: must end here",
    "label = 'spam": "position 9: must be closed by another quote",
    "time > yesterday": "position 8: must be a time in ISO 8601",
    "attributes.user = many": "position 19: must be a number",
    "attributes.user = 1e400": "position 19: must be a finite number",
    "attributes.score = NaN": "position 20: must be a finite number",
    "attributes.paid = 1": "position 19: must be true or false",
    "attributes.nobody = 1": "position 1: must be a field",
    "attributes.user in 1": "position 20: must be '('",
    "attributes.user in ()": "position 21: must be a value",
    "attributes.user in (1": "position 22: must be ')'",
    "attributes.user not 1": "position 21: must be 'in'",
    "attributes.user = and": "position 19: must be a value",
    "time ! 2020-01-01": "position 6: must be a field, a value or an operator",
    "1 = 1; drop table sample": "position 1: must be a field",
    "label = spam -- and more": "position 14: must end here",
    "not " * 60 + "label = spam": "must not be nested more than 50 deep",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_understood_is_refused_at_its_position(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_where(text, FIELDS)
    assert REFUSED[text] in str(caught.value)


@settings(max_examples=examples(300))
@given(text=st.text(st.sampled_from(list("abelnort' \"()=<>!,.;-1\n\0")), max_size=30) | st.text(max_size=20))
def test_any_text_is_a_condition_or_a_refusal(text: str) -> None:
    try:
        condition = parse_where(text, FIELDS)
    except ConfigError as error:
        assert "--where, position " in str(error)
    else:
        # Values are bound, never written into the statement.
        assert np.all([part not in str(condition) for part in ("'", '"', ";", "--")])
