"""Downsampling, drift and the model store with tensors on the device."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from modyn_dagster.keys import KeyRange
from modyn_dagster.model_store import ModelStore
from modyn_dagster.spec.triggers.drift import FeaturesSpec
from modyn_dagster.training import FastPath, Task, train
from modyn_dagster.training.downsampling import POLICIES, select
from modyn_dagster.triggering.drift import measure_drift
from modyn_dagster.triggering.measurement import DriftNeed
from tests.training.downsampling.pools import everything
from tests.training.table import Table, spec_of
from tests.triggering.drift.drifting import METRICS, SPEC, normal


@pytest.mark.parametrize("mode", ["batch_then_sample", "sample_then_batch"])
@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_trains_in_both_modes_and_the_same_bits_again(name: str, mode: str, device: str, separable: Table) -> None:
    chosen = {"policy": name, "mode": mode, "ratio": 0.3, "holdout": {"epochs": 1}}
    spec = spec_of(downsampling=chosen, epochs=2, batch_size=50, model={"name": "mlp", "hidden": [4]}, device=device)

    def once(fast_path: FastPath) -> Any:
        data = separable.data(fast_path=fast_path)
        return train(spec, data, task=Task("class", n_classes=2), seed=3, threads=1, source="p")

    found, again = once(FastPath()), once(FastPath(cache_bytes=0))
    assert np.isfinite(found.losses).all()
    for key, tensor in found.state_dict.items():
        assert tensor.numpy().tobytes() == again.state_dict[key].numpy().tobytes(), key


@pytest.mark.parametrize("name", POLICIES)
def test_a_choice_on_the_device_is_that_on_the_processor(name: str, device: str) -> None:
    inputs: dict[str, Any] = everything()
    here, there = (
        select(name, k=9, seed=5, **{field: value.to(place) for field, value in inputs.items()}) for place in ("cpu", device)
    )
    assert there[0].device.type == torch.device(device).type
    assert there[0].tolist() == here[0].tolist()
    torch.testing.assert_close(there[1].cpu(), here[1])


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("p_values", [False, True])
def test_drift_on_the_device_is_that_on_the_processor_but_for_rounding(name: str, p_values: bool, device: str) -> None:
    windows = normal(3, 200, 150, 5, shift=0.3)

    def measured(place: str) -> Any:
        metrics = {name: SPEC.validate_python(METRICS[name])}
        features = FeaturesSpec(device=place)
        need = DriftNeed(0, KeyRange(0, 1), KeyRange(1, 2), metrics, features, p_values=p_values)
        return measure_drift(need, *windows, seed=3).values[name]

    here, there = measured("cpu"), measured(device)
    assert there == pytest.approx(here, rel=1e-4, abs=0.02 if p_values else 1e-6)


def test_tensors_of_the_device_come_back_from_the_store_with_their_bits(device: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 2)).to(device)
    state = model.state_dict() | {
        "half": torch.randn(9, device=device).half(),
        "brain": torch.randn(9, device=device).bfloat16(),
        "turned": torch.randn(4, 6, device=device).T,
        "numbers": torch.arange(5, device=device),
    }
    store = ModelStore(str(tmp_path / "store"))
    first = store.save(state)
    changed = {name: tensor + 1 for name, tensor in state.items()}
    second = store.save(changed, base=first)
    for saved, expected in ((first, state), (second, changed)):
        loaded = store.load(saved)
        for name, tensor in expected.items():
            assert loaded[name].dtype == tensor.dtype
            assert torch.equal(loaded[name], tensor.cpu()), name
    again = torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 2)).to(device)
    store.load_into(store.save(model.state_dict()), again)
    for name, tensor in again.state_dict().items():
        assert tensor.device.type == torch.device(device).type
        assert torch.equal(tensor, model.state_dict()[name])
