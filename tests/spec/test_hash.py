"""A pipeline's hash covers what changes its models, and nothing else."""

from typing import Any

import pytest

from modyn_dagster.errors import ConfigError
from modyn_dagster.spec.load import parse_spec, spec_hash
from modyn_dagster.spec.pipeline import PipelineSpec
from tests.projects.tiny import amount

FUNCTION = {"function": "torch.nn:Identity", "per": "sample"}
IMAGES = {"size": [32, 32]}


def hash_of(**training: Any) -> str:
    content = amount()
    content["training"] |= training
    return spec_hash(parse_spec(content, PipelineSpec, source="test"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"parser": FUNCTION}, {"parser": FUNCTION | {"workers": {"kind": "processes", "count": 3}}}),
        ({"parser": {"images": IMAGES}}, {"parser": {"images": IMAGES | {"workers": {"count": 3}}}}),
        ({}, {"shuffle": True}),
    ],
)
def test_who_parses_is_no_part_of_it(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert hash_of(**one) == hash_of(**other)


def test_what_changes_a_model_is_part_of_it() -> None:
    variants: list[dict[str, Any]] = [
        {},
        {"shuffle": False},
        {"shuffle": "blocks"},
        {"shuffle": "blocks", "block_size": 100},
        {"parser": "torch.nn:Identity"},
        {"parser": FUNCTION},
        {"parser": FUNCTION | {"per": "batch"}},
        {"parser": {"images": IMAGES}},
        {"parser": {"images": IMAGES | {"resize": "cover"}}},
    ]
    assert len({hash_of(**variant) for variant in variants}) == len(variants)


def test_the_shards_of_a_sample_are_part_of_it_and_workers_are_no_field_of_a_pipeline() -> None:
    def of(**selection: Any) -> str:
        strategy = {"kind": "rtbs", "n": 10, "decay": {"keep": 0.1, "after": "40d"}, **selection}
        content = amount() | {"selection": {"strategy": strategy}}
        return spec_hash(parse_spec(content, PipelineSpec, source="test"))

    assert len({of(), of(shards=2), of(shards=3)}) == 3
    with pytest.raises(ConfigError, match="workers"):
        of(shards=2, workers=2)


@pytest.mark.parametrize(
    ("trigger", "expected"),
    [
        ({"kind": "amount", "every": 500}, "8f62d448171f040b205a3696ff059150"),
        ({"kind": "time", "every": "3y", "start": "1930-01-01"}, "c3bb0cda4f0fc608168aeb3011e8bef6"),
    ],
)
def test_a_pipeline_that_uses_no_new_field_keeps_its_hash_and_so_its_live_run(trigger: dict[str, Any], expected: str) -> None:
    content = {
        "name": "p",
        "dataset": "d",
        "trigger": trigger,
        "training": {"model": {"name": "logistic_regression"}},
        "evaluation": {"intervals": {"every": "1d"}},
    }
    assert spec_hash(parse_spec(content, PipelineSpec, source="test")) == expected
