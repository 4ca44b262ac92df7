"""Accumulation, clipping, averages, compilation: what a step does beside the optimizer's."""

from typing import Any

import numpy as np
import pytest
import torch

from tests.training.table import Table, spec_of
from tests.training.trained import CLASSES, assert_same_bits, trained, weights_of

MLP = {"name": "mlp", "hidden": [4]}
SGD = {"name": "sgd", "lr": 0.5}


@pytest.mark.parametrize(("small", "together"), [(25, 4), (50, 2), (100, 7)])
def test_accumulated_batches_step_as_one_batch(separable: Table, small: int, together: int) -> None:
    """Also where weights differ from batch to batch, and the last batches of an epoch are fewer or shorter."""
    weights = np.linspace(0.1, 3, 300)
    common: dict[str, Any] = {"model": MLP, "optimizer": SGD, "epochs": 3}
    whole = trained(separable, spec_of(batch_size=small * together, **common), weights=weights)
    parts = trained(separable, spec_of(batch_size=small, accumulate=together, **common), weights=weights)
    torch.testing.assert_close(weights_of(parts), weights_of(whole), rtol=1e-4, atol=1e-6)
    assert parts.n_steps == whole.n_steps


def test_estimates_are_accumulated_by_what_they_stand_for(separable: Table) -> None:
    """All of every batch is drawn, so that the estimate is the batch itself."""
    every = {"downsampling": {"policy": "uniform", "ratio": 1.0}}
    common: dict[str, Any] = {"model": MLP, "optimizer": SGD, "batch_size": 40, "accumulate": 3}
    plain = trained(separable, spec_of(**common), weights=np.linspace(0.1, 3, 300))
    drawn = trained(separable, spec_of(**common, **every), weights=np.linspace(0.1, 3, 300))
    torch.testing.assert_close(weights_of(drawn), weights_of(plain), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("norm", [1e-3, 0.05])
def test_no_step_is_longer_than_the_clipped_norm_allows(separable: Table, norm: float) -> None:
    still = trained(separable, spec_of(optimizer={"name": "sgd", "lr": 1e-30}, batch_size=300))
    moved = trained(separable, spec_of(optimizer=SGD, batch_size=300, clip={"norm": norm}))
    free = trained(separable, spec_of(optimizer=SGD, batch_size=300))
    assert float((weights_of(moved) - weights_of(still)).norm()) == pytest.approx(0.5 * norm, rel=1e-3)
    # Its direction stays.
    cosine = torch.cosine_similarity(weights_of(moved) - weights_of(still), weights_of(free) - weights_of(still), dim=0)
    assert float(cosine) == pytest.approx(1, abs=1e-4)


def test_no_weight_moves_further_than_the_clipped_value_allows(separable: Table) -> None:
    still = trained(separable, spec_of(optimizer={"name": "sgd", "lr": 1e-30}, batch_size=300))
    moved = trained(separable, spec_of(optimizer=SGD, batch_size=300, clip={"value": 1e-3}))
    assert float((weights_of(moved) - weights_of(still)).abs().max()) == pytest.approx(0.5e-3, rel=1e-3)


def test_a_bound_that_is_never_reached_changes_no_bit(separable: Table) -> None:
    one = trained(separable, spec_of(batch_size=50))
    assert_same_bits(one.state_dict, trained(separable, spec_of(batch_size=50, clip={"value": 1e6})).state_dict)


@pytest.mark.parametrize("decay", [0.2, 0.999])
def test_the_moving_average_is_that_of_the_weights_after_every_step(separable: Table, decay: float) -> None:
    """By hand, from trainings of 1, 2, 3, ... steps."""
    common: dict[str, Any] = {"model": MLP, "optimizer": SGD, "batch_size": 60}
    still = trained(separable, spec_of(model=MLP, optimizer={"name": "sgd", "lr": 1e-30}, batch_size=300))
    average = weights_of(still)
    for step in range(1, 6):
        d = min(decay, (1 + step) / (10 + step))
        average = d * average + (1 - d) * weights_of(trained(separable, spec_of(max_steps=step, **common)))
    found = trained(separable, spec_of(ema={"decay": decay}, **common))
    torch.testing.assert_close(weights_of(found), average, rtol=1e-5, atol=1e-6)
    assert found.losses == trained(separable, spec_of(**common)).losses


@pytest.mark.long
def test_a_compiled_model_of_the_eager_backend_is_the_model(separable: Table) -> None:
    """A backend with the same kernels; other backends have others."""
    common: dict[str, Any] = {"model": MLP, "epochs": 2, "batch_size": 150}
    plain = trained(separable, spec_of(**common))
    compiled = trained(separable, spec_of(compile={"backend": "eager"}, **common))
    assert_same_bits(plain.state_dict, compiled.state_dict)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"clip": {}}, "give either `norm` or `value`"),
        ({"clip": {"norm": 1, "value": 1}}, "give either `norm` or `value`"),
        ({"checkpoint": {}}, "give `steps`, `minutes` or both"),
        ({"max_samples": 10}, "max_samples 10 is less than a batch of 256"),
        ({"carry_optimizer": True}, "carry_optimizer needs use_previous_model"),
        ({"ema": {"decay": 1}}, "less than 1"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        spec_of(**fields)


def test_surroundings_name_what_decides_bits(separable: Table) -> None:
    found = trained(separable, spec_of(), task=CLASSES, threads=2).surroundings
    assert found["threads"] == 2
    assert found["torch"] == torch.__version__
    assert {"python", "numpy", "cpu_capability", "matmul_precision", "interop_threads", "device", "mkldnn"} <= set(found)
