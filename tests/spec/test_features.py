"""Specs of features: combinations that no data could make possible."""

from typing import Any

import pytest
from pydantic import ValidationError

from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.values.digest import json_digest

MODEL = {"name": "mlp"}
CITY = {"city": {"kind": "embedding"}}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "embeddings of a model without": ({"encode": CITY, "model": {"name": "cnn", "shape": [1, 8, 8]}}, "only mlp and logistic"),
    "embeddings of own models": (
        {"encode": CITY, "model": {"factory": "tests.training.training_user_code:linear"}},
        "kind: number",
    ),
    "buckets and a vocabulary": ({"encode": {"c": {"kind": "number", "buckets": 3, "max_values": 2}}}, "leave max_values out"),
    "embeddings behind transforms": (
        {"encode": CITY, "transforms": [{"function": "tests.training.transforming_user_code:times"}]},
        "`transforms` must not change it",
    ),
    "a constant without value": ({"impute": {"x": {"by": "constant"}}}, "`by: constant` needs `value`"),
    "a value that is not used": ({"impute": {"x": {"value": 3}}}, "`by: constant` needs `value`"),
    "an unknown dtype": ({"features": [{"dtype": "decimal"}]}, "a dtype of a column"),
    "a selector of everything": ({"features": [{}]}, "give `dtype`, `pattern` or both"),
    "a column twice": ({"features": ["a", {"dtype": "string"}, "a"]}, "features must not repeat"),
    "an encoding without buckets": ({"encode": {"a": {"kind": "hash"}}}, "buckets"),
    "sounds for images": ({"parser": {"sounds": {"rate": 8000, "samples": 9}}, "model": {"name": "cnn"}}, "sounds need mlp"),
    "text of a parser": (
        {"encode": CITY, "parser": {"text": {"columns": ["city"]}}, "model": {"name": "hashed_text"}},
        "leave `encode` out",
    ),
}


@pytest.mark.parametrize(("fields", "message"), REFUSED.values(), ids=list(REFUSED))
def test_impossible_features_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TrainingSpec.model_validate({"model": MODEL} | fields)


def test_fields_that_are_not_set_are_no_part_of_a_hash() -> None:
    plain = TrainingSpec.model_validate({"model": MODEL, "features": ["a"]})
    content = plain.model_dump(mode="json")
    assert not {"encode", "impute"} & content.keys()
    encoded = TrainingSpec.model_validate({"model": MODEL, "features": ["a"], "encode": CITY | {"a": {"kind": "one_hot"}}})
    assert json_digest(encoded.model_dump(mode="json")) != json_digest(content)
