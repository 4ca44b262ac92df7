"""Trainings on the device: the same bits twice, after an interruption, after SIGKILL, in every precision; and predictions."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from modyn_dagster.errors import ConfigError
from modyn_dagster.spec.tasks.objectives import kind_of_objective
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training import (
    CheckpointFile,
    FastPath,
    Predictor,
    PreviousModel,
    Task,
    TrainedModel,
    TrainingProgress,
    build_predictor,
    train,
)
from modyn_dagster.training.data import COLUMNS, EMBEDDING, OUTPUTS
from tests.training.resumable import RESUMABLE, resumable
from tests.training.table import Table, spec_of
from tests.training.train_and_be_killed import bits, rows, trained

ROOT = Path(__file__).parents[2]
SMALL = {"model": {"name": "mlp", "hidden": [32], "dropout": 0.2}, "epochs": 4, "batch_size": 50}


class Broken(Exception):
    pass


def trained_on(table: Table, spec: TrainingSpec, fast_path: FastPath = FastPath()) -> TrainedModel:  # noqa: B008 - frozen
    return train(spec, table.data(fast_path=fast_path), task=Task("class"), seed=3, threads=1, source="p")


def broken_off(spec: TrainingSpec, path: Path, at: int) -> None:
    """Train until batch ``at`` and no further."""

    def told(progress: TrainingProgress) -> None:
        if progress.step == at:
            raise Broken

    calibrate = rows(40, 2).data() if spec.early_stopping is not None else None
    data = rows(150, 1).data(np.linspace(0.5, 2, 150))
    given: dict[str, Any] = {"task": Task(kind_of_objective(spec.loss) or "class"), "seed": 7, "threads": 1, "source": "p"}
    with pytest.raises(Broken):
        train(spec, data, calibrate=calibrate, checkpoint=CheckpointFile(path), progress=told, **given)


def predictor_of(model: TrainedModel, device: str) -> Predictor:
    return build_predictor(model.architecture, model.state_dict, device=device, threads=1, source="p")


@pytest.mark.parametrize("name", RESUMABLE)
def test_every_training_that_is_broken_off_ends_with_the_bits_of_the_whole_one(name: str, device: str, tmp_path: Path) -> None:
    spec = resumable(name, device=device)
    whole = bits(trained(spec, None))
    assert bits(trained(spec, None)) == whole
    broken_off(spec, tmp_path / "checkpoint", at=4)
    assert bits(trained(spec, tmp_path / "checkpoint")) == whole


@pytest.mark.parametrize("name", ["momentum_and_schedule", "half_precision"])
def test_a_training_that_is_killed_ends_with_the_bits_of_the_whole_one(name: str, device: str, tmp_path: Path) -> None:
    def run(checkpoint: str, step: int, result: str) -> int:
        command = [sys.executable, "-m", "tests.gpu.train_alone", name, device, checkpoint, str(step), str(tmp_path / result)]
        return subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False).returncode

    assert run("-", 0, "whole") == 0
    assert run(str(tmp_path / "checkpoint"), 5, "killed") == -signal.SIGKILL
    assert not (tmp_path / "killed").exists()
    assert run(str(tmp_path / "checkpoint"), 0, "resumed") == 0
    assert (tmp_path / "resumed").read_bytes() == (tmp_path / "whole").read_bytes()


@pytest.mark.parametrize("precision", ["32-true", "64-true", "bf16-mixed", "16-mixed"])
def test_every_precision_learns_and_resumes(precision: str, device: str, separable: Table, tmp_path: Path) -> None:
    if precision == "16-mixed" and device == "cpu":
        pytest.skip("a processor has bf16-mixed")
    spec = spec_of(**SMALL, precision=precision, device=device, optimizer={"name": "adam", "lr": 0.02}, clip={"norm": 1.0})
    found = trained_on(separable, spec)
    assert found.losses[-1] < 0.7 * found.losses[0]
    checkpointed = resumable("average_and_clipping", precision=precision, device=device)
    whole = bits(trained(checkpointed, None))
    broken_off(checkpointed, tmp_path / "checkpoint", at=5)
    assert bits(trained(checkpointed, tmp_path / "checkpoint")) == whole


@pytest.mark.parametrize("cache_bytes", [0, 2**30])
def test_samples_from_memory_and_from_the_reader_give_the_same_bits(cache_bytes: int, device: str, separable: Table) -> None:
    spec = spec_of(**SMALL, device=device)
    assert bits(trained_on(separable, spec, FastPath(cache_bytes=cache_bytes))) == bits(trained_on(separable, spec))


def test_a_numbered_device_is_the_same_training(device: str, separable: Table) -> None:
    numbered = device if device == "cpu" or ":" in device else f"{device}:0"
    one, other = (trained_on(separable, spec_of(**SMALL, device=each)) for each in (device, numbered))
    assert bits(one) == bits(other)


def test_a_gpu_that_is_not_there_is_refused_by_the_names_of_those_that_are(gpu: torch.device, separable: Table) -> None:
    with pytest.raises(ConfigError, match=r"this machine has cuda:0"):
        trained_on(separable, spec_of(**SMALL, device="cuda:99"))


def test_tensors_of_a_loss_of_user_code_follow_the_model(device: str, separable: Table) -> None:
    loss = {"factory": "gpu_user_code:weighted_loss"}
    plain = spec_of(**SMALL, device=device, loss=loss)
    assert np.isfinite(trained_on(separable, plain).losses).all()
    for policy in ("rho", "glister"):
        holdout = {"epochs": 1} if policy == "rho" else {"kind": "simple", "share": 0.2}
        chosen = {"policy": policy, "mode": "batch_then_sample", "ratio": 0.5, "holdout": holdout}
        assert np.isfinite(trained_on(separable, spec_of(**SMALL, device=device, loss=loss, downsampling=chosen)).losses).all()


def test_a_model_goes_on_on_the_device_with_the_state_of_its_optimizer(device: str, separable: Table) -> None:
    spec = spec_of(**SMALL, device=device, use_previous_model=True, carry_optimizer=True, optimizer={"name": "adam"})
    first = trained_on(separable, spec)
    previous = PreviousModel(first.state_dict, first.architecture, first.optimizers)
    data = separable.data()
    second = train(spec, data, task=Task("class"), seed=3, threads=1, source="p", previous=previous)
    assert second.losses[0] < first.losses[0]


def test_predictions_repeat_and_are_those_of_the_processor_but_for_rounding(device: str, separable: Table) -> None:
    model = trained_on(separable, spec_of(**SMALL, device=device))
    predict, reference = predictor_of(model, device), predictor_of(model, "cpu")
    outputs = predict(separable.samples)
    assert outputs.tobytes() == predict(separable.samples).tobytes()
    np.testing.assert_allclose(outputs, reference(separable.samples), rtol=1e-4, atol=1e-5)
    tapped = predict.tapped(separable.samples, [OUTPUTS, COLUMNS, EMBEDDING])
    assert {name: len(values) for name, values in tapped.items()} == dict.fromkeys([OUTPUTS, COLUMNS, EMBEDDING], separable.n)
