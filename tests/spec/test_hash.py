"""A pipeline's hash covers what changes its models, and nothing else."""

from typing import Any

import pytest

from modyn_dagster.spec.load import parse_spec, spec_hash
from modyn_dagster.spec.pipeline import PipelineSpec
from tests.projects.tiny import amount

FUNCTION = {"function": "json:loads", "per": "sample"}
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
        {"parser": "json:loads"},
        {"parser": FUNCTION},
        {"parser": FUNCTION | {"per": "batch"}},
        {"parser": {"images": IMAGES}},
        {"parser": {"images": IMAGES | {"resize": "cover"}}},
    ]
    assert len({hash_of(**variant) for variant in variants}) == len(variants)
