"""A training that was broken off goes on from its checkpoint and ends with the bits it would have had."""

import contextlib
import logging
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from modyn_dagster.errors import TrainingError
from modyn_dagster.reproducibility.randomness import rng_for
from modyn_dagster.spec.tasks.objectives import kind_of_objective
from modyn_dagster.training import CheckpointFile, FastPath, Task, TrainedModel, TrainingProgress, train
from tests.training.resumable import RESUMABLE, resumable
from tests.training.table import FASTEST
from tests.training.train_and_be_killed import bits, rows, trained
from tests.variants import represented

HERE = Path(__file__).parent


class Broken(Exception):
    pass


def broken_off(name: str, path: Path, at: int, fast_path: FastPath = FASTEST, **fields: object) -> int:
    """Trains until batch ``at`` and no further; how many batches there would have been."""
    n_batches = 0

    def told(progress: TrainingProgress) -> None:
        nonlocal n_batches
        n_batches = progress.n_steps
        if progress.step == at:
            raise Broken

    spec = resumable(name, **fields)
    given: dict[str, Any] = {"task": Task(kind_of_objective(spec.loss) or "class"), "seed": 7, "threads": 1, "source": "p"}
    calibrate = rows(40, 2).data() if spec.early_stopping is not None else None
    data = rows(150, 1).data(np.linspace(0.5, 2, 150), fast_path)
    with contextlib.suppress(Broken):
        train(spec, data, calibrate=calibrate, checkpoint=CheckpointFile(path), progress=told, **given)
    return n_batches


@pytest.fixture(autouse=True)
def own_code(user_code: str) -> None:
    """Some of the trainings name it."""


@pytest.mark.long
@represented(
    "name",
    list(RESUMABLE),
    "laws-training",
    "momentum_and_schedule",
    "accumulation",
    "dlis",
    "augmented",
    "contrastive",
)
def test_a_training_ends_with_the_same_bits_wherever_it_was_broken_off(name: str, tmp_path: Path) -> None:
    whole = bits(trained(resumable(name), None))
    n_batches = broken_off(name, tmp_path / "none", at=1)
    for at in {2, int(rng_for(0, name).integers(3, n_batches)), n_batches}:
        path = tmp_path / f"{at}.safetensors"
        broken_off(name, path, at)
        random.seed(at)
        assert bits(trained(resumable(name), path)) == whole, f"broken off at batch {at} of {n_batches}"


@pytest.mark.process
def test_a_training_that_was_killed_ends_with_the_same_bits(tmp_path: Path) -> None:
    names = ["momentum_and_schedule", "average_and_clipping", "accumulation", "dlis", "contrastive", "restless"]
    cases = [f"{name}:{rng_for(1, name).integers(3, 7)}" for name in names]
    command = [sys.executable, "-m", "tests.training.train_and_be_killed", str(tmp_path), *cases]
    # With a GPU autograd starts threads at the first backward pass, and refuses any in a fork.
    hidden = {"CUDA_VISIBLE_DEVICES": ""}
    environment = os.environ | hidden | {"PYTHONPATH": f"{HERE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    subprocess.run(command, cwd=HERE.parents[1], check=True, env=environment)
    for name in names:
        assert (tmp_path / f"{name}.checkpoint").is_file()
        assert not (tmp_path / f"{name}.killed").exists()
        assert (tmp_path / f"{name}.resumed").read_bytes() == (tmp_path / f"{name}.whole").read_bytes(), name


def test_it_goes_on_where_it_was_and_not_at_the_beginning(tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    broken_off("plain", path, at=5)
    steps: list[int] = []
    spec, data = resumable("plain"), rows(150, 1).data(np.linspace(0.5, 2, 150))
    given: dict[str, Any] = {"task": Task("class"), "seed": 7, "threads": 1, "source": "p"}
    train(spec, data, checkpoint=CheckpointFile(path), progress=lambda p: steps.append(p.step), **given)
    # What was told of batch 5 broke off before its state was written.
    assert steps == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("name", ["plain", "blocks", "dlis", "el2n"])
def test_a_streamed_training_goes_on_too(name: str, tmp_path: Path) -> None:
    streamed = FastPath(cache_bytes=0)
    whole = bits(trained(resumable(name), None))
    broken_off(name, tmp_path / "c", 5, streamed)
    assert bits(trained(resumable(name), tmp_path / "c", fast_path=streamed)) == whole


def broken_after(n_saves: int | None, path: Path, monkeypatch: pytest.MonkeyPatch, **fields: object) -> int:
    """Trains with irreducible losses until so many files were written; how many were."""
    written = 0
    save = CheckpointFile.save

    def spy(self: CheckpointFile, fingerprint: str, state: Any) -> None:
        nonlocal written
        save(self, fingerprint, state)
        written += 1
        if written == n_saves:
            raise Broken

    with monkeypatch.context() as patch, contextlib.suppress(Broken):
        patch.setattr(CheckpointFile, "save", spy)
        trained(resumable("rho", **fields), path)
    return written


@pytest.mark.long
@pytest.mark.parametrize("holdout", [{"epochs": 1}, {"kind": "simple", "share": 0.4, "epochs": 1}], ids=["twin", "simple"])
def test_models_of_irreducible_losses_are_gone_on_with_too(
    holdout: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every step and every model's losses are written down once, wherever a kill comes between."""
    fields = {"downsampling": {"policy": "rho", "mode": "batch_then_sample", "ratio": 0.5, "holdout": holdout}, "epochs": 1}
    whole = bits(trained(resumable("rho", **fields), None))
    n_saves = broken_after(None, tmp_path / "whole", monkeypatch, **fields)
    assert n_saves == (9 if holdout["epochs"] and "kind" not in holdout else 5)
    for at in range(1, n_saves):
        path = tmp_path / f"c{at}"
        assert broken_after(at, path, monkeypatch, **fields) == at
        assert broken_after(None, path, monkeypatch, **fields) == n_saves - at
        assert bits(trained(resumable("rho", **fields), path)) == whole
        CheckpointFile(path).remove()
        assert not list(tmp_path.glob(f"c{at}*"))


def test_checkpoints_change_nothing(tmp_path: Path) -> None:
    spec = resumable("restless")
    assert bits(trained(spec, tmp_path / "c")) == bits(trained(spec.model_copy(update={"checkpoint": None}), tmp_path / "d"))
    assert (tmp_path / "c").is_file()
    assert not (tmp_path / "d").exists()


def saved_at(spec_fields: dict[str, object], path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Optimizer steps after which a checkpoint was written."""
    found: list[int] = []
    save = CheckpointFile.save

    def spy(self: CheckpointFile, fingerprint: str, state: Any) -> None:
        found.append(state["steps"]["n_steps"])
        save(self, fingerprint, state)

    monkeypatch.setattr(CheckpointFile, "save", spy)
    trained(resumable("plain", **spec_fields), path)
    return found


def test_they_are_written_every_so_many_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert saved_at({"checkpoint": {"steps": 4}}, tmp_path / "c", monkeypatch) == [4, 8]


@pytest.mark.parametrize(("minutes", "expected"), [(1e-9, list(range(1, 10))), (60, [])])
def test_they_are_written_every_so_many_minutes(
    minutes: float, expected: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert saved_at({"checkpoint": {"minutes": minutes}}, tmp_path / "c", monkeypatch) == expected


def test_they_are_written_between_optimizer_steps_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fields: dict[str, object] = {"checkpoint": {"steps": 1}, "accumulate": 2, "epochs": 1}
    assert saved_at(fields, tmp_path / "c", monkeypatch) == [1]


@pytest.mark.parametrize(
    "other",
    [{"epochs": 4}, {"batch_size": 40}, {"optimizer": {"lr": 0.5}}, {"clip": {"norm": 1.0}}, {"model": {"name": "mlp"}}],
)
def test_a_checkpoint_of_another_spec_is_not_gone_on_with(other: dict[str, object], tmp_path: Path) -> None:
    broken_off("plain", tmp_path / "c", 4)
    spec = resumable("plain", **other)
    assert bits(trained(spec, tmp_path / "c")) == bits(trained(spec, None))


@pytest.mark.long
def test_a_checkpoint_of_other_data_seed_or_threads_is_not_gone_on_with(tmp_path: Path) -> None:
    spec, task = resumable("plain"), Task("class")

    def one(checkpoint: Path | None, *, weights: float = 1, seed: int = 7, threads: int = 1) -> TrainedModel:
        data = rows(150, 1).data(np.full(150, weights))
        file = None if checkpoint is None else CheckpointFile(checkpoint)
        return train(spec, data, task=task, source="p", seed=seed, threads=threads, checkpoint=file)

    others: list[dict[str, Any]] = [{"weights": 2.0}, {"seed": 8}, {"threads": 2}]
    for other in others:
        path = tmp_path / "c"
        one(path)
        assert bits(one(path, **other)) == bits(one(None, **other))


def test_a_checkpoint_of_other_code_is_not_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = tmp_path / "changing_code.py"
    text = "def scaled(inputs):\n    return inputs * {}\n"
    monkeypatch.syspath_prepend(str(tmp_path))
    fields: dict[str, Any] = {"transforms": [{"function": "changing_code:scaled"}]}
    for factor in (2, 3):
        code.write_text(text.format(factor))
        sys.modules.pop("changing_code", None)
        if factor == 2:
            broken_off("plain", tmp_path / "c", 4, **fields)
    spec = resumable("plain", **fields)
    assert bits(trained(spec, tmp_path / "c")) == bits(trained(spec, None))


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty"])
def test_a_damaged_checkpoint_is_passed_over_with_a_word(damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "c"
    broken_off("plain", path, 4)
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes({"flip": bytes(content), "truncate": bytes(content[: len(content) // 2]), "empty": b""}[damage])
    with caplog.at_level(logging.WARNING):
        assert bits(trained(resumable("plain"), path)) == bits(trained(resumable("plain"), None))
    assert "the training begins at its beginning" in caplog.text


def test_state_that_cannot_be_written_is_an_error_that_says_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(
        TrainingError, match=r"state\['steps'\]\['loss'\]\['there'\] is a object, which cannot be stored without pickle"
    ):
        CheckpointFile(tmp_path / "c").save("f", {"steps": {"loss": {"there": object()}}})


def test_removing_a_checkpoint_takes_what_killed_writers_left(tmp_path: Path) -> None:
    file = CheckpointFile(tmp_path / "c")
    file.save("f", {"a": 1})
    (tmp_path / ".c.0123abcd.tmp").write_bytes(b"half")
    file.remove()
    file.remove()
    assert list(tmp_path.iterdir()) == []
