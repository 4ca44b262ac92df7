"""Objectives against formulas by hand and torch's own functions."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from modyn_dagster.errors import TrainingError, WrongShape
from modyn_dagster.keys import KeyArray, keys_of
from modyn_dagster.spec.tasks.objectives import IGNORED, CausalTokensSpec, ContrastiveSpec, MaskedTokensSpec, ReconstructionSpec
from modyn_dagster.training.objectives.objective import OutputForm
from modyn_dagster.training.objectives.tokens import CausalTokens, MaskedTokens
from modyn_dagster.training.objectives.values import Contrastive, Reconstruction

SIZES = st.integers(1, 12)


def keys(n: int) -> KeyArray:
    return keys_of(3, np.arange(n))


def masked(length: int, **fields: Any) -> MaskedTokens:
    spec = {"name": "masked_tokens", "vocabulary": 40, "mask": 39} | fields
    return MaskedTokens(MaskedTokensSpec.model_validate(spec), length, "p")


def tokens_of(seed: int, n: int, length: int) -> torch.Tensor:
    """Texts of uneven lengths, some of them empty."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(1, 39, (n, length))
    return torch.from_numpy(np.where(np.arange(length) < rng.integers(0, length + 1, n)[:, None], tokens, 0))


def nt_xent_by_hand(rows: npt.NDArray[np.float64], temperature: float) -> npt.NDArray[np.float64]:
    """Losses of samples from embeddings ``[n, 2, d]``, one pair after the other."""
    views = [view / np.linalg.norm(view) for sample in rows for view in sample]
    losses = []
    for i, view in enumerate(views):
        others = [math.exp(view @ other / temperature) for j, other in enumerate(views) if j != i]
        partner = math.exp(view @ views[i + 1 if i % 2 == 0 else i - 1] / temperature)
        losses.append(-math.log(partner / sum(others)))
    return np.asarray(np.array(losses).reshape(-1, 2).mean(axis=1))


@given(st.integers(0, 2**20), SIZES, st.sampled_from([0.1, 0.5, 2.0]))
def test_nt_xent_is_that_of_all_pairs_one_by_one(seed: int, n: int, temperature: float) -> None:
    rows = np.random.default_rng(seed).normal(size=(n, 2, 3))
    objective = Contrastive(ContrastiveSpec(name="nt_xent", dimension=3, temperature=temperature))
    losses = objective.loss(torch.from_numpy(rows.reshape(n, 6)), torch.zeros(n))
    np.testing.assert_allclose(losses.numpy(), nt_xent_by_hand(rows, temperature), rtol=1e-9, atol=1e-12)


@given(st.integers(0, 2**20), SIZES)
def test_errors_of_a_reconstruction_are_those_of_torch(seed: int, n: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    inputs, outputs = (torch.randn(n, 2, 3, generator=generator) for _ in range(2))
    for error, function in (("mse", functional.mse_loss), ("l1", functional.l1_loss)):
        objective = Reconstruction(ReconstructionSpec.model_validate({"name": "reconstruction", "error": error}), (2, 3))
        posed, targets = objective.pose(inputs, keys(n), 0)
        assert posed is inputs
        losses = objective.loss(outputs.flatten(1), targets)
        expected = [function(output, own) for output, own in zip(outputs, inputs, strict=True)]
        torch.testing.assert_close(losses, torch.stack(expected))


@given(st.integers(0, 2**20), SIZES, st.integers(2, 8))
def test_the_loss_of_a_text_is_torchs_cross_entropy_without_its_padding(seed: int, n: int, length: int) -> None:
    objective = CausalTokens(CausalTokensSpec(name="causal_tokens", vocabulary=40), length, "p")
    tokens = tokens_of(seed, n, length)
    posed, targets = objective.pose(tokens, keys(n), 0)
    assert torch.equal(posed, tokens)
    outputs = torch.randn(n, length, 40, generator=torch.Generator().manual_seed(seed))
    losses, measures = objective.loss(outputs.flatten(1), targets), objective.measures(outputs.flatten(1), targets)
    for row, text in enumerate(tokens):
        words = int((text != 0).sum())
        predicted = outputs[row, : max(0, words - 1)]
        assert float(measures[row, 2]) == max(0, words - 1)
        if words > 1:
            torch.testing.assert_close(losses[row], functional.cross_entropy(predicted, text[1:words]))
            torch.testing.assert_close(measures[row, 0], functional.cross_entropy(predicted, text[1:words], reduction="sum"))
            assert float(measures[row, 1]) == int((predicted.argmax(1) == text[1:words]).sum())
        else:
            assert float(losses[row]) == 0


@given(st.integers(0, 2**20), SIZES, st.integers(1, 9), st.integers(0, 100), st.permutations(range(12)))
def test_hidden_tokens_depend_on_key_and_salt_alone(seed: int, n: int, length: int, salt: int, order: list[int]) -> None:
    objective, tokens = masked(length), tokens_of(seed, n, length)
    shown, targets = objective.pose(tokens, keys(n), salt)
    rows = torch.tensor([row for row in order if row < n])
    again, same = objective.pose(tokens[rows], keys(n)[rows.numpy()], salt)
    assert torch.equal(again, shown[rows])
    assert torch.equal(same, targets[rows])
    hidden = targets != IGNORED
    assert torch.equal(targets[hidden], tokens[hidden])
    assert torch.equal(shown[~hidden], tokens[~hidden])
    assert not (hidden & (tokens == 0)).any()
    assert torch.equal(hidden.any(1), (tokens != 0).any(1))


def test_so_many_tokens_are_hidden_and_in_every_epoch_others() -> None:
    tokens = torch.full((500, 40), 7)
    objective = masked(40, share=0.2, random=0.1, kept=0.2)
    (shown, targets), (_, later) = (objective.pose(tokens, keys(500), salt) for salt in (1, 2))
    hidden = targets != IGNORED
    assert hidden.float().mean() == pytest.approx(0.2, abs=0.01)
    assert (shown[hidden] == 39).float().mean() == pytest.approx(0.7, abs=0.03)
    # One in forty of the random tokens is the one that was there.
    assert (shown[hidden] == 7).float().mean() == pytest.approx(0.2 + 0.1 / 40, abs=0.03)
    assert (hidden & (later != IGNORED)).float().mean() == pytest.approx(0.04, abs=0.01)


@pytest.mark.parametrize("number", [-1, 40])
def test_a_token_outside_of_the_vocabulary_is_named_by_key(number: int) -> None:
    tokens = torch.tensor([[1, 2], [number, 3]])
    with pytest.raises(
        TrainingError, match=rf"loss\.vocabulary: the sample with key {keys(2)[1]} has tokens .*, tokens are 0 to 39"
    ):
        masked(2).pose(tokens, keys(2), 0)


def test_tokens_that_are_no_whole_numbers_are_refused() -> None:
    with pytest.raises(TrainingError, match=r"tokens are whole numbers, the inputs are torch\.float32"):
        masked(2).pose(torch.ones(1, 2), keys(1), 0)


def test_outputs_of_another_form_are_refused() -> None:
    assert OutputForm((2, 3), any_shape=True).checked(torch.zeros(4, 6), 4, what="it").shape == (4, 6)
    for form, outputs in (
        (OutputForm((2, 3)), torch.zeros(4, 6)),
        (OutputForm((2, 3), any_shape=True), torch.zeros(4, 5)),
        (OutputForm((2,), views=2), torch.zeros(4, 2)),
        (OutputForm((2,)), [0.0]),
    ):
        with pytest.raises(WrongShape, match="it"):
            form.checked(outputs, 4, what="it")
