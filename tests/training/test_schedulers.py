"""Schedules against torch's own, over all names, for as many steps as there truly are."""

from typing import Any, get_args

import pytest
import torch
from torch import nn

from modyn_dagster.spec.learning.optimizers import SchedulerName
from tests.training.noted import noting, rates, scheduled
from tests.training.table import Table, spec_of
from tests.training.trained import trained


@pytest.fixture(autouse=True)
def forget(user_code: str) -> None:
    """The module that trainings import by its path, beside the one that tests import as part of a package."""
    rates().clear()
    scheduled().clear()


def torchs_own(name: str, length: int, lr: float) -> list[float]:
    """Learning rates of ``length`` steps, by torch."""
    scheduling = torch.optim.lr_scheduler
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=lr)
    kinds: dict[str, Any] = {
        "constant": lambda: scheduling.ConstantLR(optimizer, factor=1.0),
        "step": lambda: scheduling.StepLR(optimizer, step_size=2),
        "multistep": lambda: scheduling.MultiStepLR(optimizer, milestones=[1, 3]),
        "exponential": lambda: scheduling.ExponentialLR(optimizer, gamma=0.9),
        "linear": lambda: scheduling.LinearLR(optimizer, 1.0, 0.01, total_iters=length),
        "polynomial": lambda: scheduling.PolynomialLR(optimizer, total_iters=length),
        "cosine": lambda: scheduling.CosineAnnealingLR(optimizer, T_max=length),
        "one_cycle": lambda: scheduling.OneCycleLR(optimizer, max_lr=lr, total_steps=length, cycle_momentum=False),
    }
    scheduler, found = kinds[name](), []
    for _ in range(length):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


CONFIG: dict[str, dict[str, Any]] = {
    "step": {"step_size": 2},
    "multistep": {"milestones": [1, 3]},
    "exponential": {"gamma": 0.9},
    "one_cycle": {"cycle_momentum": False},
}
DOWNSAMPLINGS: list[tuple[dict[str, Any], int]] = [
    ({}, 12),
    ({"accumulate": 4}, 4),
    ({"max_steps": 7}, 7),
    ({"max_samples": 430}, 8),
    ({"downsampling": {"policy": "uniform", "ratio": 0.5}}, 12),
    ({"downsampling": {"policy": "uniform", "ratio": 0.5, "mode": "sample_then_batch"}}, 6),
    ({"downsampling": {"policy": "uniform", "ratio": 0.5, "mode": "sample_then_batch"}, "accumulate": 2}, 4),
    ({"downsampling": {"policy": "uniform", "ratio": 0.5}, "max_samples": 430}, 12),
]


@pytest.mark.parametrize("name", get_args(SchedulerName))
def test_schedules_are_torchs_own_over_the_whole_training(separable: Table, name: str) -> None:
    scheduler = {"name": name, "config": CONFIG.get(name, {})}
    trained(separable, spec_of(optimizer=noting(scheduler=scheduler), epochs=2, batch_size=50))
    assert [rate for (rate,) in rates()] == pytest.approx(torchs_own(name, 12, 0.1))


@pytest.mark.parametrize(("fields", "n_steps"), DOWNSAMPLINGS)
def test_schedules_know_the_true_number_of_steps(separable: Table, fields: dict[str, Any], n_steps: int) -> None:
    spec = spec_of(optimizer=noting(scheduler={"name": "linear"}), epochs=2, batch_size=50, **fields)
    found = trained(separable, spec)
    assert found.n_steps == len(rates()) == n_steps
    assert [rate for (rate,) in rates()] == pytest.approx(torchs_own("linear", n_steps, 0.1))


def test_schedules_of_epochs_step_once_an_epoch(separable: Table) -> None:
    scheduler = {"factory": "training_user_code:halving", "every": "epoch"}
    trained(separable, spec_of(optimizer=noting(scheduler=scheduler), epochs=3, batch_size=150))
    assert rates() == [[0.1], [0.1], [0.05], [0.05], [0.025], [0.025]]
    assert scheduled() == [3]


def test_a_warm_up_rises_to_the_learning_rate_and_the_schedule_has_the_rest(separable: Table) -> None:
    trained(separable, spec_of(optimizer=noting(scheduler={"name": "cosine", "warmup": 4}), epochs=2, batch_size=50))
    found = [rate for (rate,) in rates()]
    assert found[0] == pytest.approx(1e-4)
    assert found[:5] == sorted(found[:5])
    assert found[4:] == pytest.approx(torchs_own("cosine", 8, 0.1))


def test_every_optimizer_has_its_own_schedule(separable: Table) -> None:
    optimizers = [
        noting(parameters=["*weight"], scheduler={"name": "exponential", "config": {"gamma": 0.5}}),
        noting(config={"lr": 0.3}),
    ]
    trained(separable, spec_of(optimizer=optimizers, batch_size=150))
    assert rates() == [[0.1], [0.3], [0.05], [0.3]]
