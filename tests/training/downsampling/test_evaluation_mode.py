"""Scoring a model during its training leaves the training unchanged."""

from typing import Any

import pytest
import torch
from torch import nn

from modyn_dagster.training.downsampling.scoring import evaluation_mode


class Frozen(nn.Sequential):
    """Module whose first part never leaves the mode of evaluation, as people do with pretrained layers."""

    def train(self, mode: bool = True) -> "Frozen":
        super().train(mode)
        self[0].eval()
        return self


class Told(nn.Dropout):
    """Remembers what it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[bool] = []

    def train(self, mode: bool = True) -> "Told":
        self.told.append(mode)
        return super().train(mode)


def plain() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Sequential(nn.Dropout(), nn.Dropout()))


def frozen() -> nn.Module:
    return Frozen(nn.BatchNorm1d(2), nn.Dropout()).train()


def compiled() -> Any:
    return torch.compile(plain(), backend="eager")


def modes(body: nn.Module) -> list[bool]:
    return [module.training for module in body.modules()]


@pytest.mark.parametrize("make", [plain, frozen, compiled])
@pytest.mark.parametrize("asleep", [0, 1, 2, 9])
def test_every_module_is_judged_and_then_as_it_was(make, asleep):
    body = make()
    for module in list(body.modules())[:asleep]:
        module.training = False
    before = modes(body)
    with evaluation_mode(body):
        assert not any(modes(body))
    assert modes(body) == before


def test_an_error_in_the_middle_changes_no_mode():
    body = plain()
    with pytest.raises(KeyError), evaluation_mode(body):
        raise KeyError
    assert all(modes(body))


def test_a_module_with_modes_of_its_own_is_told():
    told = Told()
    with evaluation_mode(nn.Sequential(nn.Linear(1, 1), told)):
        assert told.told == [False]
    assert told.training
