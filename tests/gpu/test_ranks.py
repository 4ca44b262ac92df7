"""Ranks with a GPU each, which talk by NCCL: the same bits every time, and close to what one GPU makes of the training."""

from typing import Any, Final

import pytest
import torch

from modyn_dagster.distributed.processes.group import LocalGroup
from modyn_dagster.training import Task, TrainedModel, train
from modyn_dagster.training.in_ranks import train_in_ranks
from tests.training.table import Table, spec_of

_FIELDS: Final[dict[str, Any]] = {
    "model": {"name": "mlp", "hidden": [16], "dropout": 0.3},
    "optimizer": {"name": "adam", "lr": 0.01},
    "precision": "64-true",
    "epochs": 4,
    "batch_size": 50,
}
_GIVEN: Final[dict[str, Any]] = {"task": Task("class"), "seed": 3, "threads": 1, "source": "p"}


@pytest.fixture
def ranks_have_devices(device: str) -> str:
    """The processor, or GPUs enough for two ranks."""
    if device != "cpu" and torch.cuda.device_count() < 2:
        pytest.skip("this machine has one GPU, and two ranks need two")
    return device.partition(":")[0]


@pytest.mark.parametrize("strategy", ["replicated", "fsdp"])
def test_two_ranks_end_the_same_twice_and_differ_from_one_by_rounding(
    strategy: str, ranks_have_devices: str, separable: Table
) -> None:
    spec = spec_of(**_FIELDS, device=ranks_have_devices)
    alone = train(spec, separable.data(), **_GIVEN)
    spec_of_ranks = spec.model_copy(update={"ranks": 2, "strategy": strategy})
    twice = [train_in_ranks(LocalGroup(), spec_of_ranks, separable.data(), timeout=60.0, **_GIVEN) for _ in range(2)]
    assert torch.equal(_weights(twice[0]), _weights(twice[1]))
    torch.testing.assert_close(_weights(twice[0]), _weights(alone), rtol=1e-9, atol=1e-12)


def _weights(model: TrainedModel) -> torch.Tensor:
    return torch.cat([tensor.flatten() for name, tensor in model.state_dict.items() if name.startswith("body.")])
