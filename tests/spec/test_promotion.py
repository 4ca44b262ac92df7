"""Rules of promotion in a pipeline's file: what goes together, and what is refused with field and reason."""

from typing import Any

import pytest

from modyn_dagster.errors import ConfigError
from modyn_dagster.spec.load import parse_spec, spec_hash
from modyn_dagster.spec.pipeline import PipelineSpec
from tests.projects.tiny import Content, amount


def parsed(content: Content) -> PipelineSpec:
    return parse_spec(content, PipelineSpec, source="p.yaml")


def promoting(**promotion: Any) -> PipelineSpec:
    return parsed(amount() | {"promotion": promotion})


def test_without_promotion_the_newest_model_is_live_and_the_hash_is_as_ever() -> None:
    plain, spelt = parsed(amount()), parsed(amount() | {"promotion": None, "live": None})
    assert plain.live_model == "newest"
    assert spec_hash(plain) == spec_hash(spelt)
    assert "promotion" not in plain.model_dump(mode="json")


@pytest.mark.parametrize(
    ("promotion", "rule"),
    [
        ({"metric": "roc_auc"}, "roc_auc is no mean of losses of single samples; use test: block_bootstrap"),
        ({"metric": "accuracy", "test": "block_bootstrap"}, "accuracy is a mean of losses; use test: confidence_sequence"),
        ({"metric": "log_loss", "test": "mcnemar"}, "mcnemar tests the accuracy alone, not log_loss"),
        ({"metric": "mse"}, "the losses of mse have no bound of their own: give promotion.bound"),
        ({"metric": "estimated_accuracy"}, "estimated_accuracy estimates without labels"),
        ({"test": "mcnemar", "margin": 0.1}, "mcnemar tests against a margin of 0 alone"),
        ({"test": "mcnemar", "bound": 3}, "only confidence_sequence bounds losses"),
        ({"block": 10}, "only block_bootstrap has blocks"),
        ({"guardrails": {"metrics": [{"metric": "f1", "max_drop": 0, "slice": "country"}]}}, "'country' is not among"),
        ({"rollback": {"below": 0.5, "max_drop": 0.1}}, "give exactly one of below, above and max_drop"),
        ({"rollback": {}}, "give exactly one of below, above and max_drop"),
        ({"shadow": {"for": "soon"}}, "must be a whole number and a unit"),
        ({"against": "newest"}, "champion"),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(promotion: Content, rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        promoting(**promotion)


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"live": "champion"}, "live: champion needs `promotion`"),
        ({"promotion": {}, "retention": {"predictions": 3}}, "retention.predictions must be null"),
        ({"promotion": {}, "evaluation": {"data": {"kind": "trigger_spans"}}}, "promotion needs evaluation.data evaluate"),
    ],
)
def test_what_promotion_needs_is_said(fields: Content, rule: str) -> None:
    content = amount()
    if "evaluation" in fields:
        fields = fields | {"evaluation": content["evaluation"] | fields["evaluation"]}
    with pytest.raises(ConfigError, match=rule):
        parsed(content | fields)


def test_training_from_the_champion_needs_promotion() -> None:
    content = amount()
    content["training"] |= {"use_previous_model": "champion"}
    with pytest.raises(ConfigError, match="use_previous_model: champion needs `promotion`"):
        parsed(content)
