"""Trainings leave their process as it was: threads, algorithms and generators, for other threads too."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from modyn_dagster.progress import ProgressCallback
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training import Task, TrainedModel, train
from tests.training.table import FASTEST, Table, spec_of


def trained(table: Table, spec: TrainingSpec, *, threads: int = 1, progress: ProgressCallback | None = None) -> TrainedModel:
    task = Task("class", exclude=frozenset({"label"}))
    return train(spec, table.data(None, FASTEST), task=task, seed=3, threads=threads, source="pipeline p", progress=progress)


def test_the_process_is_left_as_it_was(separable: Table, two_threads: None) -> None:
    random.seed(5)
    np.random.seed(5)
    torch.manual_seed(5)
    expected = random.getrandbits(60), np.random.random(), torch.rand(1).item()
    random.seed(5)
    np.random.seed(5)
    torch.manual_seed(5)
    trained(separable, spec_of(model={"name": "mlp", "dropout": 0.5}))
    assert (random.getrandbits(60), np.random.random(), torch.rand(1).item()) == expected
    assert torch.get_num_threads() == 2
    assert not torch.are_deterministic_algorithms_enabled()


def test_training_uses_the_threads_it_is_given(separable: Table) -> None:
    seen: list[int] = []
    trained(separable, spec_of(), threads=2, progress=lambda _: seen.append(torch.get_num_threads()))
    assert set(seen) == {2}


def test_it_runs_deterministic_unless_told_otherwise(separable: Table) -> None:
    seen: list[bool] = []
    for deterministic in (True, False):
        spec = spec_of(deterministic=deterministic, batch_size=300)
        trained(separable, spec, progress=lambda _: seen.append(torch.are_deterministic_algorithms_enabled()))
    assert seen == [True, False]


def test_trainings_in_several_threads_are_as_if_each_were_alone(separable: Table) -> None:
    spec = spec_of(model={"name": "mlp", "dropout": 0.5}, epochs=3)
    alone = trained(separable, spec)
    together = threading.Barrier(4)

    def one_of_four() -> TrainedModel:
        together.wait()
        return trained(separable, spec)

    with ThreadPoolExecutor(4) as pool:
        for found in [each.result() for each in [pool.submit(one_of_four) for _ in range(4)]]:
            for name, tensor in alone.state_dict.items():
                assert found.state_dict[name].numpy().tobytes() == tensor.numpy().tobytes(), name
    assert not torch.are_deterministic_algorithms_enabled()
