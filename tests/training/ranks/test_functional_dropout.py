"""Dropout inside of attention, recurrent layers and functions: in ranks a sample loses what it loses in one process."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.checkpoint import checkpoint

from fastpath.order import part_sizes
from modyn_dagster.errors import ConfigError
from modyn_dagster.reproducibility.determinism import restored_generators
from modyn_dagster.training.inputs.batch import Whole
from modyn_dagster.training.team.dropout import Masks
from modyn_dagster.training.team.functional_dropout import FunctionalDropout
from tests.examples import examples

CPU = torch.device("cpu")
#: Length and width of a sample's sequence.
LENGTH, WIDTH = 3, 4


class Attention(nn.Module):
    """Attention of a sequence to itself, [b, length, width]."""

    def __init__(self, p: float, *, weights: bool, batch_first: bool) -> None:
        super().__init__()
        self.layer = nn.MultiheadAttention(WIDTH, 2, dropout=p, batch_first=batch_first)
        self.weights, self.batch_first = weights, batch_first

    def forward(self, inputs: Tensor) -> Tensor:
        rows = inputs if self.batch_first else inputs.transpose(0, 1)
        outputs: Tensor = self.layer(rows, rows, rows, need_weights=self.weights)[0]
        return outputs if self.batch_first else outputs.transpose(0, 1)


class Recurrent(nn.Module):
    """Layers of a recurrent network, with the time first or second."""

    def __init__(self, kind: type[nn.RNNBase], p: float, *, batch_first: bool = True) -> None:
        super().__init__()
        self.layer = kind(WIDTH, WIDTH, num_layers=3, dropout=p, batch_first=batch_first, bidirectional=True)  # type: ignore[call-arg, arg-type]  # of its kinds
        self.batch_first = batch_first

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.layer(inputs if self.batch_first else inputs.transpose(0, 1))[0]
        return outputs if self.batch_first else outputs.transpose(0, 1)


class Function(nn.Module):
    """A function with a probability."""

    def __init__(self, function: Callable[[Tensor, float], Tensor], p: float) -> None:
        super().__init__()
        self.function, self.p = function, p

    def forward(self, inputs: Tensor) -> Tensor:
        return self.function(inputs, self.p)


def attend(inputs: Tensor, p: float) -> Tensor:
    return functional.scaled_dot_product_attention(inputs, inputs, inputs, dropout_p=p)


def attend_in_heads(inputs: Tensor, p: float) -> Tensor:
    rows = inputs.reshape(*inputs.shape[:2], 2, WIDTH // 2).transpose(1, 2)
    return functional.scaled_dot_product_attention(rows, rows, rows, None, p).transpose(1, 2).flatten(2)


class Own(nn.Dropout):
    """A dropout of user code."""


LAYERS: dict[str, Callable[[float], nn.Module]] = {
    "attention": lambda p: Attention(p, weights=True, batch_first=True),
    "attention_time_first": lambda p: Attention(p, weights=True, batch_first=False),
    "attention_without_weights": lambda p: Attention(p, weights=False, batch_first=True),
    "encoder": lambda p: nn.TransformerEncoderLayer(WIDTH, 2, 8, dropout=p, batch_first=True),
    "lstm": lambda p: Recurrent(nn.LSTM, p),
    "lstm_time_first": lambda p: Recurrent(nn.LSTM, p, batch_first=False),
    "gru": lambda p: Recurrent(nn.GRU, p),
    "rnn": lambda p: Recurrent(nn.RNN, p),
    "function": lambda p: Function(attend, p),
    "function_in_heads": lambda p: Function(attend_in_heads, p),
    "dropout_of_torch": lambda p: Function(lambda inputs, p: torch.dropout(inputs, p, True), p),
    "own": Own,
    "alpha": nn.AlphaDropout,
    "alpha_of_channels": nn.FeatureAlphaDropout,
    "channels": nn.Dropout1d,
}


def whole_of(n: int, rank: int, ranks: int) -> Whole:
    return Whole(torch.arange(n), torch.zeros(n), torch.ones(n), tuple(part_sizes(n, ranks)), rank)


def stack_of(name: str, p: float) -> nn.Module:
    """Two layers of a kind, with the same weights for everyone."""
    with restored_generators():
        torch.manual_seed(11)
        last = nn.Linear(2 * WIDTH, WIDTH) if name.startswith(("lstm", "gru", "rnn")) else nn.Identity()
        layers = [LAYERS[name](p), last, LAYERS[name](p / 2)]
        return nn.Sequential(*layers).double()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.soak("laws-training")] * (n % 3 > 0)) for n, name in enumerate(sorted(LAYERS))]
)
@settings(max_examples=examples(8))
@given(st.integers(1, 4), st.integers(0, 2**32), st.sampled_from([0.0, 0.4, 0.5, 1.0]))
def test_any_number_of_ranks_drops_what_one_process_drops(name: str, ranks: int, seed: int, p: float) -> None:
    rng = np.random.default_rng(seed)
    # A rank without samples gets the state from another one, so every rank has some.
    steps = [torch.from_numpy(rng.uniform(1, 2, (n, LENGTH, WIDTH))) for n in rng.integers(4, 9, 2).tolist()]
    orders = [torch.from_numpy(rng.permutation(len(inputs))) for inputs in steps]
    with restored_generators():
        torch.manual_seed(3)
        begin = torch.get_rng_state()
        alone = stack_of(name, p)
        expected = [alone(inputs) for inputs in steps]
        for rank in range(ranks):
            masks, stack = Masks(CPU, "p"), stack_of(name, p)
            masks.state = begin
            torch.manual_seed(rank)
            for outputs, inputs, order in zip(expected, steps, orders, strict=True):
                whole, _ = whole_of(len(inputs), rank, ranks).subset(order, torch.ones(len(order)))
                assert whole.order is not None
                places = whole.own(whole.order)
                with masks.of_step(whole), FunctionalDropout(masks):
                    own = stack(inputs[places])
                torch.testing.assert_close(own, outputs[places], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", sorted(LAYERS))
def test_layers_draw_with_dropout_and_do_not_without(name: str) -> None:
    for p, changed in ((0.5, True), (0.0, False)):
        masks, stack = Masks(CPU, "p"), stack_of(name, p)
        masks.state = begin = torch.get_rng_state()
        with restored_generators(), masks.of_step(whole_of(5, 0, 1)), FunctionalDropout(masks):
            stack(torch.ones(5, LENGTH, WIDTH, dtype=torch.float64))
        assert torch.equal(masks.state, begin) is not changed


def test_the_generator_of_a_rank_stays_as_it_is() -> None:
    masks, stack = Masks(CPU, "p"), stack_of("encoder", 0.5)
    with restored_generators():
        masks.state = torch.Generator().manual_seed(1).get_state()
        before = torch.get_rng_state()
        with masks.of_step(whole_of(5, 0, 1)), FunctionalDropout(masks):
            stack(torch.ones(5, LENGTH, WIDTH, dtype=torch.float64))
        assert torch.equal(torch.get_rng_state(), before)


def packed(inputs: Tensor) -> Any:
    return nn.LSTM(WIDTH, WIDTH, num_layers=2, dropout=0.5)(
        pack_padded_sequence(inputs, [LENGTH] * len(inputs), batch_first=True)
    )


REFUSED: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "packed": (packed, "of `lstm` gets packed sequences, .* pad them"),
    "time_as_samples": (
        nn.GRU(WIDTH, WIDTH, num_layers=2, dropout=0.5),
        "of `gru` gets .* second axis must count the samples",
    ),
    "columns": (
        lambda inputs: functional.dropout(inputs.transpose(0, 1), 0.5),
        "of `dropout` gets inputs .* first axis",
    ),
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_draws_that_do_not_belong_to_samples_are_refused(name: str) -> None:
    call, message = REFUSED[name]
    masks = Masks(CPU, "pipeline p")
    with (
        masks.of_step(whole_of(10, 0, 2)),
        FunctionalDropout(masks),
        pytest.raises(ConfigError, match=rf"pipeline p: training\.ranks: the dropout {message}"),
    ):
        call(torch.ones(5, LENGTH, WIDTH))


@pytest.mark.parametrize("name", ["encoder", "lstm", "function"])
def test_a_draw_outside_of_the_forward_pass_is_refused(name: str) -> None:
    masks = Masks(CPU, "p")
    with FunctionalDropout(masks), pytest.raises(ConfigError, match=r"of `.*` draws outside of the forward pass"):
        stack_of(name, 0.5)(torch.ones(5, LENGTH, WIDTH, dtype=torch.float64))


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_part_that_is_repeated_in_the_backward_pass_is_refused(reentrant: bool) -> None:
    masks, stack = Masks(CPU, "p"), stack_of("encoder", 0.5)
    inputs = torch.ones(5, LENGTH, WIDTH, dtype=torch.float64, requires_grad=True)
    with masks.of_step(whole_of(5, 0, 1)), FunctionalDropout(masks), pytest.raises(ConfigError, match="part that is repeated"):
        checkpoint(stack, inputs, use_reentrant=reentrant)
