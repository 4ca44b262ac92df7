"""Masks of dropout in ranks: those of one process, whatever the number of ranks and the order of the samples."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from fastpath.order import part_sizes
from modyn_dagster.errors import ConfigError
from modyn_dagster.reproducibility.determinism import restored_generators
from modyn_dagster.training.inputs.batch import Whole
from modyn_dagster.training.loop.agreement import draw_apart
from modyn_dagster.training.team.dropout import Masks, share_dropouts

CPU = torch.device("cpu")
#: Dropout layers, and the shape of one sample.
LAYERS: dict[str, tuple[type[nn.Module], tuple[int, ...]]] = {
    "values": (nn.Dropout, (5,)),
    "numbers": (nn.Dropout, ()),
    "lines": (nn.Dropout1d, (3, 4)),
    "images": (nn.Dropout2d, (3, 2, 4)),
    "volumes": (nn.Dropout3d, (3, 2, 2, 2)),
}


def whole_of(n: int, rank: int, ranks: int) -> Whole:
    return Whole(torch.arange(n), torch.zeros(n), torch.ones(n), tuple(part_sizes(n, ranks)), rank)


def stack_of(kind: type[nn.Module], p: float) -> nn.Sequential:
    return nn.Sequential(kind(p), nn.Identity(), kind(p / 2))


def alone(kind: type[nn.Module], p: float, steps: list[Tensor]) -> list[Tensor]:
    """Outputs of one process."""
    with restored_generators():
        torch.manual_seed(3)
        stack = stack_of(kind, p)
        return [stack(inputs) for inputs in steps]


def in_ranks(kind: type[nn.Module], p: float, steps: list[Tensor], orders: list[Tensor], ranks: int) -> list[Tensor]:
    """Outputs of ranks in the order of one process; each rank has drawn as it pleases before."""
    outputs = [torch.full_like(inputs, torch.nan) for inputs in steps]
    with restored_generators():
        torch.manual_seed(3)
        begin = torch.get_rng_state()
        for rank in range(ranks):
            masks, stack = Masks(CPU, "p"), stack_of(kind, p)
            masks.state = begin
            share_dropouts(stack, masks)
            torch.manual_seed(rank)
            for found, inputs, order in zip(outputs, steps, orders, strict=True):
                whole, _ = whole_of(len(inputs), rank, ranks).subset(order, torch.ones(len(order)))
                assert whole.order is not None
                places = order[whole.own(whole.order)]
                with masks.of_step(whole):
                    own = stack(inputs[whole.own(whole.order)])
                assert len(own) == len(places)
                found[whole.own(whole.order)] = own
                torch.rand(rank)
    return outputs


@given(st.sampled_from(sorted(LAYERS)), st.integers(1, 5), st.integers(0, 2**32), st.sampled_from([0.0, 0.3, 1.0]))
def test_any_number_of_ranks_drops_what_one_process_drops(name: str, ranks: int, seed: int, p: float) -> None:
    kind, shape = LAYERS[name]
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 9, 3).tolist()
    steps = [torch.from_numpy(rng.uniform(1, 2, (n, *shape))) for n in sizes]
    orders = [torch.from_numpy(rng.permutation(n)) for n in sizes]
    for found, expected in zip(in_ranks(kind, p, steps, orders, ranks), alone(kind, p, steps), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("shape", [(6, 4), (6, 3, 2, 2)], ids=["transposed", "channels_last"])
def test_masks_follow_the_order_of_the_inputs_in_memory(shape: tuple[int, ...]) -> None:
    axes = [*range(1, len(shape)), 0]
    inputs = torch.ones(shape).permute(axes).contiguous().permute([len(shape) - 1, *range(len(shape) - 1)])
    assert not inputs.is_contiguous()
    masks, stack = Masks(CPU, "p"), stack_of(nn.Dropout, 0.5)
    share_dropouts(stack, masks)
    with restored_generators(), masks.of_step(whole_of(len(inputs), 0, 1)):
        torch.manual_seed(3)
        assert torch.equal(stack(inputs), alone(nn.Dropout, 0.5, [inputs])[0])


def test_evaluation_draws_nothing() -> None:
    masks, stack = Masks(CPU, "p"), stack_of(nn.Dropout, 0.5).eval()
    share_dropouts(stack, masks)
    assert torch.equal(stack(torch.ones(4, 2)), torch.ones(4, 2))
    assert masks.state is None


def test_a_layer_that_is_no_dropout_of_torch_stays_as_it_is() -> None:
    class Own(nn.Dropout):
        """A dropout of user code."""

    body = nn.Sequential(Own(0.5), nn.AlphaDropout(0.5), nn.Linear(2, 2))
    share_dropouts(body, Masks(CPU, "p"))
    assert not any("forward" in vars(module) for module in body.modules())


@pytest.mark.parametrize(
    ("whole", "message"), [(None, "draws outside of the forward pass"), (whole_of(9, 1, 2), "first axis must count the samples")]
)
def test_what_cannot_be_drawn_by_sample_is_refused(whole: Whole | None, message: str) -> None:
    masks, stack = Masks(CPU, "pipeline p"), stack_of(nn.Dropout, 0.5)
    share_dropouts(stack, masks)
    with pytest.raises(ConfigError, match=rf"pipeline p: training\.ranks: the dropout 0 .*{message}"):
        if whole is None:
            stack(torch.ones(4, 2))
        else:
            with masks.of_step(whole):
                stack(torch.ones(4, 2))


def test_what_a_model_draws_by_itself_differs_by_rank() -> None:
    """Equal numbers at the same place of every share would be one number for two samples."""
    drawn, states = [], []
    with restored_generators():
        for index in (0, 1, 0):
            torch.manual_seed(5)
            masks = Masks(CPU, "p")
            told: Any = SimpleNamespace(masks=masks, team=SimpleNamespace(index=index, states=lambda state: [state]))
            draw_apart(told, 7)
            drawn.append(torch.rand(64).tolist())
            states.append(masks.state)
    assert drawn[0] == drawn[2] != drawn[1]
    assert states[0] is not None
    assert states[1] is not None
    assert torch.equal(states[0], states[1])
