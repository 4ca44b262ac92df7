"""Errors of wrong specs name the field that was meant and the allowed values."""

from typing import Any

import pytest

from modyn_dagster.errors import ConfigError
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.spec.load import parse_spec
from modyn_dagster.spec.pipeline import PipelineSpec

PIPELINE: dict[str, Any] = {
    "name": "p",
    "dataset": "d",
    "trigger": {"kind": "amount", "every": 100},
    "training": {"model": {"name": "mlp"}},
    "evaluation": {"intervals": {"kind": "tumbling", "every": "1d"}},
}
DRIFT: dict[str, Any] = {
    "kind": "drift",
    "windows": {"by": "amount", "reference": 9, "current": 9},
    "metrics": {"a": {"metric": "mmd"}},
    "decision": {"rule": "threshold", "value": 1},
}


def complaint(content: object) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_spec(content, PipelineSpec, source="p.yaml")
    assert str(caught.value).startswith("p.yaml: ")
    return str(caught.value).removeprefix("p.yaml: ")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"trigger": {"kind": "amnt"}}, "trigger.kind: must be one of 'amount', 'time', 'drift', "),
        ({"trigger": {"every": 3}}, "trigger.kind: is required (found ['every'])"),
        ({"trigger": {"kind": "amount"}}, "trigger.every: is required (found ['kind'])"),
        ({"trigger": {"kind": "time", "evry": "3d"}}, "trigger.evry: is not a field here (found '3d')"),
        ({"trigger": "amount"}, "trigger: must be a mapping of fields (found 'amount')"),
        ({"trigger": {**DRIFT, "metrics": {"a": {"metric": "mdm"}}}}, "trigger.metrics.a.metric: must be one of 'ks', "),
        (
            {"trigger": {**DRIFT, "metrics": {"a": {"metric": "mmd", "bandwith": 1}}}},
            "trigger.metrics.a.bandwith: is not a field",
        ),
        ({"trigger": {**DRIFT, "decision": {"rule": "thresold"}}}, "trigger.decision.rule: must be one of 'threshold', "),
        (
            {"trigger": {"kind": "ensemble", "rule": "any", "policies": {"a": PIPELINE["trigger"], "b": {"kind": "tim"}}}},
            "trigger.policies.b.kind: must be one of 'amount', 'time', ",
        ),
        ({"training": {"model": {"name": "mpl"}}}, "training.model.name: must be one of 'logistic_regression', 'mlp', "),
        ({"training": {"model": {"name": "mlp", "hiden": [3]}}}, "training.model.hiden: is not a field here (found [3])"),
        ({"training": {"model": {"factory": "torch.nn:Identity", "conf": {}}}}, "training.model.conf: is not a field here"),
        ({"selection": {"window": {"last_trigers": 3}}}, "selection.window.last_trigers: is not a field here (found 3)"),
        ({"selection": {"strategy": {"kind": "uniform", "ratio": 3}}}, "selection.strategy.ratio: Input should be less than"),
        (
            {"selection": {"strategy": {"kind": "uniform", "ratio": 1, "size": 2}}},
            "selection.strategy: give either ratio or size",
        ),
    ],
)
def test_the_field_that_was_meant_is_named_as_it_stands_in_the_file(fields: dict[str, Any], message: str) -> None:
    assert complaint({**PIPELINE, **fields}).startswith(message)


def test_a_field_that_is_missing_is_told_beside_the_names_of_those_that_are_there_and_not_their_values() -> None:
    content = {name: value for name, value in PIPELINE.items() if name != "training"}
    assert complaint(content) == "training: is required (found ['name', 'dataset', 'trigger', 'evaluation'])"


@pytest.mark.parametrize("content", [None, [], "text", 3])
def test_a_file_that_is_no_mapping_is_told_so(content: object) -> None:
    assert complaint(content) == f"(file): must be a mapping of fields (found {content!r})"


def test_a_dataset_without_a_source_of_times_names_it() -> None:
    content = {"name": "d", "root": ".", "format": {"kind": "csv"}, "time": {"column": "when"}}
    with pytest.raises(ConfigError, match=r"d.yaml: time.source: is required \(found \['column'\]\)"):
        parse_spec(content, DatasetSpec, source="d.yaml")


def test_no_password_of_an_address_is_shown() -> None:
    content = {"name": "d", "root": ".", "format": "s3://user:secret@bucket", "time": {"source": "mtime"}}
    with pytest.raises(ConfigError) as caught:
        parse_spec(content, DatasetSpec, source="d.yaml")
    assert "secret" not in str(caught.value)
