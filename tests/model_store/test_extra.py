"""Extra state: a training resumed from the store ends with the bits of an uninterrupted one."""

import random
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from modyn_dagster.errors import StorageError
from modyn_dagster.model_store import ModelId, ModelStore
from modyn_dagster.model_store.format.extra_state import split_extra_state, with_extra_state
from modyn_dagster.model_store.format.record import Record
from modyn_dagster.spec.learning.optimizers import SchedulerSpec
from modyn_dagster.training.loop.schedulers import Scheduler, TrainingLength
from tests.variants import represented

STEPS = 12
_Kind = Callable[[torch.optim.Optimizer], Any]
#: What the platform's schedules need beside a name.
CONFIG: Mapping[str, dict[str, Any]] = {
    "step": {"step_size": 3},
    "multistep": {"milestones": [2, 6, 6, 9]},
    "exponential": {"gamma": 0.9},
    "constant": {"factor": 0.5, "total_iters": 7},
}
NAMES = ["constant", "step", "multistep", "exponential", "linear", "polynomial", "cosine", "one_cycle"]


def of_platform(name: str, warmup: int = 0) -> _Kind:
    spec = SchedulerSpec.model_validate({"name": name, "warmup": warmup, "config": CONFIG.get(name, {})})
    return lambda optimizer: Scheduler(spec, optimizer, TrainingLength(STEPS, STEPS, 1), field="scheduler", source="test")


SCHEDULES: Mapping[str, _Kind] = {
    **{name: of_platform(name) for name in NAMES},
    **{f"{name}, warmed up": of_platform(name, 4) for name in NAMES if name != "one_cycle"},
    "plateau": lambda optimizer: lr_scheduler.ReduceLROnPlateau(optimizer, patience=1, factor=0.5),
    "restarts": lambda optimizer: lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 3, 2),
    "cyclic": lambda optimizer: lr_scheduler.CyclicLR(optimizer, 0.001, 0.1, 3, cycle_momentum=False),
    "lambda": lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step),
    "chained": lambda optimizer: lr_scheduler.ChainedScheduler(
        [lr_scheduler.StepLR(optimizer, 2), lr_scheduler.LinearLR(optimizer, total_iters=5)]
    ),
}
OPTIMIZERS: Mapping[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, amsgrad=True),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.01, momentum=0.5),
}


class Training:
    """Drawn from three generators: dropout by torch, samples by NumPy, labels by Python."""

    def __init__(self, optimizer: str, schedule: str, seed: int) -> None:
        torch.manual_seed(seed)
        self.rng, self.python = np.random.default_rng(seed), random.Random(seed)  # noqa: S311 - as users have it
        self.module = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.ReLU(), nn.Linear(8, 2))
        self.optimizer = OPTIMIZERS[optimizer](self.module.parameters())
        self.schedule = SCHEDULES[schedule](self.optimizer)
        self.rates: list[float] = []

    def walk(self, n_steps: int) -> None:
        for _ in range(n_steps):
            inputs = torch.from_numpy(self.rng.normal(size=(16, 4)).astype(np.float32))
            labels = torch.tensor([self.python.randrange(2) for _ in range(16)])
            loss = nn.functional.cross_entropy(self.module(inputs), labels)
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            match self.schedule:
                case Scheduler():
                    self.schedule.after("batch")
                case lr_scheduler.ReduceLROnPlateau():
                    self.schedule.step(loss.item())
                case _:
                    self.schedule.step()
            self.rates += [float(group["lr"]) for group in self.optimizer.param_groups]

    def save(self, store: ModelStore) -> ModelId:
        extra = {
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "generators": (torch.get_rng_state(), self.rng.bit_generator.state, self.python.getstate()),
            "rates": self.rates,
        }
        return store.save(self.module.state_dict(), extra=extra)

    def load(self, store: ModelStore, model: ModelId) -> None:
        store.load_into(model, self.module)
        extra = store.load_extra(model)
        self.optimizer.load_state_dict(extra["optimizer"])
        self.schedule.load_state_dict(extra["schedule"])
        of_torch, self.rng.bit_generator.state, of_python = extra["generators"]
        torch.set_rng_state(of_torch)
        self.python.setstate(of_python)
        self.rates = extra["rates"]


@pytest.mark.long
@represented("schedule", list(SCHEDULES), "laws-models", *list(SCHEDULES)[::4])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_training_that_goes_on_from_the_store_ends_as_if_never_interrupted(
    tmp_path: Path, optimizer: str, schedule: str
) -> None:
    store = ModelStore(tmp_path)
    whole = Training(optimizer, schedule, seed=1)
    whole.walk(STEPS)
    begun = Training(optimizer, schedule, seed=1)
    begun.walk(5)
    model = begun.save(store)
    # Another process: nothing is as it was.
    resumed = Training(optimizer, schedule, seed=2)
    resumed.load(store, model)
    resumed.walk(STEPS - 5)
    assert resumed.rates == whole.rates
    assert len(set(whole.rates)) > 1
    assert Record.of(resumed.module.state_dict()).id == Record.of(whole.module.state_dict()).id
    # All of it: the state that comes next has the same identity, too.
    assert resumed.save(store) == whole.save(store)


def test_values_come_back_of_the_types_they_had() -> None:
    values = {
        "counter": Counter({3: 1, 5: 2}),
        "ordered": OrderedDict([("b", 1), ("a", 2)]),
        "dict": {1: "x", "1": "y", (2, 3): None},
        "scalars": [np.int64(-7), np.float32(0.1), np.uint8(3), np.bool_(True)],
        "large": 2**200,
        "floats": [float("-inf"), -0.0, 5e-324],
        "array": np.arange(6, dtype=np.uint64).reshape(2, 3)[:, ::-1],
        "empty": ((), [], {}, b"", ""),
    }
    _, found = split_extra_state(with_extra_state({}, values))
    assert _typed(found) == _typed(values)


def _typed(value: Any) -> Any:
    """The value with the types of all its parts."""
    match value:
        case dict():
            return type(value), [(_typed(key), _typed(part)) for key, part in value.items()]
        case list() | tuple():
            return type(value), [_typed(part) for part in value]
        case np.ndarray():
            return value.dtype, value.shape, value.tobytes()
    return type(value), repr(value)


def test_what_cannot_be_stored_is_named() -> None:
    itself: dict[str, Any] = {}
    itself["again"] = itself
    for extra, says in (
        ({"a": [1, np.array([object()])]}, r"extra\['a'\]\[1\] is an array of object"),
        ({"a": np.array(["2024-01-01"], "datetime64[D]")}, r"extra\['a'\] is an array of datetime64"),
        ({"a": {1, 2}}, r"extra\['a'\] is a set"),
        ({"a": torch.ones(2).to_sparse()}, r"extra\['a'\].* is a torch.sparse_coo tensor"),
        (itself, "holds itself"),
    ):
        with pytest.raises(StorageError, match=says):
            with_extra_state({}, extra)
