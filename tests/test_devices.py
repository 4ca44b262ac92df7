"""Devices of a machine: the one that a spec means, refused by name where there is none."""

import os

import pytest
import torch

from modyn_dagster.errors import ConfigError
from modyn_dagster.reproducibility.devices import current_device, resolve_device
from modyn_dagster.training.downsampling.pool_builder import Validation
from modyn_dagster.training.downsampling.scoring import Scored
from modyn_dagster.training.models.losses import LOSSES


def machine(monkeypatch: pytest.MonkeyPatch, n_gpus: int) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: n_gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: n_gpus)


def resolved(device: str) -> str:
    return resolve_device(device, source="pipeline p", field="training.device")


@pytest.mark.parametrize(
    ("n_gpus", "device", "expected"),
    [
        (0, "cpu", "cpu"),
        (0, "auto", "cpu"),
        (2, "auto", "cuda"),
        (2, "cpu", "cpu"),
        (2, "cuda", "cuda"),
        (2, "cuda:0", "cuda:0"),
        (2, "cuda:1", "cuda:1"),
    ],
)
def test_a_device_is_found(monkeypatch: pytest.MonkeyPatch, n_gpus: int, device: str, expected: str) -> None:
    machine(monkeypatch, n_gpus)
    assert resolved(device) == expected


@pytest.mark.parametrize(
    ("n_gpus", "device", "rule"),
    [
        (0, "cuda", "no CUDA device"),
        (0, "cuda:0", "no CUDA device"),
        (2, "cuda:2", "this machine has cuda:0, cuda:1; CUDA_VISIBLE"),
    ],
)
def test_a_gpu_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch, n_gpus: int, device: str, rule: str) -> None:
    machine(monkeypatch, n_gpus)
    with pytest.raises(ConfigError, match=rule) as caught:
        resolved(device)
    assert (caught.value.source, caught.value.field, caught.value.value) == ("pipeline p", "training.device", device)


@pytest.mark.parametrize(("n_gpus", "device", "expected"), [(1, "cuda", ":4096:8"), (1, "cpu", None), (0, "auto", None)])
def test_products_repeat_from_the_first_use_of_a_gpu_on(
    monkeypatch: pytest.MonkeyPatch, n_gpus: int, device: str, expected: str | None
) -> None:
    machine(monkeypatch, n_gpus)
    resolved(device)
    assert os.environ.get("CUBLAS_WORKSPACE_CONFIG") == expected


def test_on_a_processor_no_device_is_made_current() -> None:
    with current_device(torch.device("cpu")):
        assert not torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # torch has no type for it


@pytest.mark.parametrize("last_layer", [False, True])
def test_scores_of_held_out_samples_are_where_the_loss_is_also_those_of_a_checkpoint(last_layer: bool) -> None:
    """On torch's device without memory, where every tensor that is left behind is an error."""
    n, classes, width = 5, 3, 4
    scored = {
        "outputs": torch.zeros(n, classes),
        "targets": torch.zeros(n, dtype=torch.int64),
        "losses": torch.zeros(n),
        "gradients": torch.zeros(n, classes),
        "embeddings": torch.zeros(n, width),
    }
    assert all(
        part.is_meta
        for part in (Scored(**scored).to(torch.device("meta")).outputs, Scored(**scored).to(torch.device("meta")).losses)
    )
    validation = Validation(lambda: iter(()), LOSSES["cross_entropy"], last_layer=last_layer, device="meta")
    validation.load_state_dict(scored)
    size = classes * (width + 1) if last_layer else classes
    assert validation.gradient(torch.zeros(size)).shape == (size,)
    assert validation.gradient(torch.zeros(size)).is_meta
