"""Scoring computes the values that a policy asks for, and nothing beside them."""

import pytest
import torch
from torch import Tensor, nn

from modyn_dagster.spec.learning.downsampling import DownsamplingSpec
from modyn_dagster.training.downsampling.plan import Plan
from modyn_dagster.training.downsampling.scoring import Model, Scored, Scorer
from modyn_dagster.training.inputs.batch import Batch

TARGETS = torch.tensor([1.0, -2.0, 0.5])
BATCH = Batch(torch.arange(3), {"x": torch.randn(3, 2)}, TARGETS, torch.ones(3), 3.0)


def cubes(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs[:, 0] - targets).abs() ** 3


@pytest.mark.parametrize("name", ["craig", "gradmatch", "glister", "grand"])
@pytest.mark.parametrize("kind", ["class", "target"])
def test_gradients_are_made_for_whoever_names_them(name, kind):
    assert Plan.of(DownsamplingSpec(policy=name), kind, epochs=1, source="p").needs_gradients(kind)


@pytest.mark.parametrize("name", ["uniform", "loss", "rho", "k_center", "infobatch"])
@pytest.mark.parametrize("kind", ["class", "target"])
def test_nobody_else_pays_for_them(name, kind):
    assert not Plan.of(DownsamplingSpec(policy=name), kind, epochs=1, source="p").needs_gradients(kind)


def test_where_outputs_are_no_logits_gradients_stand_for_them():
    plan = Plan.of(DownsamplingSpec(policy="dlis"), "target", epochs=1, source="p")
    assert plan.needs_gradients("target")
    assert not plan.needs_gradients("class")


def test_the_last_layer_is_made_of_gradients():
    spec = DownsamplingSpec(policy="k_center", gradient="last_layer")
    assert Plan.of(spec, "class", epochs=1, source="p").needs_gradients("class")


def test_gradients_are_those_of_the_loss_and_cost_no_digit_of_it():
    layer = nn.Linear(2, 1)

    def scored(*, gradients: bool) -> Scored:
        model = Model(layer, lambda batch: layer(batch.inputs["x"]), cubes)
        scorer = Scorer(model, gradients=gradients, embeddings=False, source="p")
        return scorer(BATCH)

    with_them, without = scored(gradients=True), scored(gradients=False)
    away = with_them.outputs[:, 0] - TARGETS
    torch.testing.assert_close(with_them.gradients, (3 * away * away.abs())[:, None])
    assert without.gradients is None
    assert torch.equal(without.losses, with_them.losses)
    assert torch.equal(without.outputs, with_them.outputs)
    assert not without.losses.requires_grad
