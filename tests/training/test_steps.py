"""Accumulation, clipping, averages, budgets, early stopping: what a step and an epoch do beside the optimizer's."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from modyn_dagster.errors import ConfigError
from modyn_dagster.training import PreviousModel, TrainedModel
from modyn_dagster.training.batches import batch_sizes
from modyn_dagster.training.plan import length_of
from tests.training.table import MakeTable, Table, spec_of
from tests.training.trained import CLASSES, assert_same_bits, trained

MLP = {"name": "mlp", "hidden": [4]}
SGD = {"name": "sgd", "lr": 0.5}


def weights_of(found: TrainedModel) -> torch.Tensor:
    return torch.cat([tensor.flatten() for name, tensor in found.state_dict.items() if name.startswith("body.")])


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


@given(
    n=st.integers(1, 200),
    batch_size=st.integers(1, 60),
    epochs=st.integers(1, 4),
    accumulate=st.integers(1, 5),
    max_steps=st.none() | st.integers(1, 30),
    max_samples=st.none() | st.integers(60, 400),
)
@settings(max_examples=200, deadline=None)
def test_budgets_by_brute_force(
    n: int, batch_size: int, epochs: int, accumulate: int, max_steps: int | None, max_samples: int | None
) -> None:
    budgets = {"max_steps": max_steps, "max_samples": max_samples}
    spec = spec_of(batch_size=batch_size, epochs=epochs, accumulate=accumulate, **budgets)
    sizes = batch_sizes(n, spec)
    batches, steps, samples, begun, over = 0, 0, 0, 0, False
    for _ in range(epochs):
        before = batches
        for first in range(0, len(sizes), accumulate):
            taken = 0
            for size in sizes[first : first + accumulate]:
                over = over or steps == max_steps or (max_samples is not None and samples + size > max_samples)
                if not over:
                    samples, taken = samples + size, taken + 1
            batches, steps = batches + taken, steps + bool(taken)
        begun += batches > before
    found = length_of(sizes, spec)
    assert (found.n_batches, found.n_steps, found.n_epochs) == (batches, steps, begun)


@pytest.mark.parametrize(
    ("fields", "n_steps", "samples"),
    [
        ({"max_steps": 4}, 4, [200]),
        ({"max_steps": 6}, 6, [300]),
        ({"max_steps": 8}, 8, [300, 100]),
        ({"max_samples": 449}, 8, [300, 100]),
        ({"max_steps": 3, "accumulate": 4}, 3, [300, 200]),
        ({"max_samples": 600}, 12, [300, 300]),
    ],
)
def test_a_budget_ends_the_training_when_it_is_spent(
    separable: Table, fields: dict[str, Any], n_steps: int, samples: list[int]
) -> None:
    found = trained(separable, spec_of(batch_size=50, epochs=2, **fields))
    assert found.n_steps == n_steps
    assert [epoch["n_samples"] for epoch in found.epochs] == samples
    assert len(found.losses) == len(samples)


def test_what_a_budget_cuts_off_is_the_beginning_of_the_longer_training(separable: Table) -> None:
    """With no schedule that would know of the end."""
    one = trained(separable, spec_of(batch_size=50, epochs=1))
    other = trained(separable, spec_of(batch_size=50, epochs=7, max_steps=6))
    assert_same_bits(one.state_dict, other.state_dict)


def calibration(table: MakeTable, n: int = 100) -> Table:
    rng = np.random.default_rng(11)
    left, right = rng.normal(5, 3, n), rng.normal(-100, 40, n)
    return table({"left": left, "right": right}, labels=(left - 5 > (right + 100) / 40).astype(np.int64))


def test_early_stopping_keeps_the_weights_of_its_best_epoch(separable: Table, table: MakeTable) -> None:
    """A learning rate that overshoots makes later epochs worse."""
    common: dict[str, Any] = {"batch_size": 20, "optimizer": {"name": "sgd", "lr": 40.0}}
    apart = calibration(table).data()
    found = trained(separable, spec_of(epochs=30, early_stopping={"patience": 3}, **common), calibrate=apart)
    best = int(np.argmin(found.calibration_losses))
    assert len(found.calibration_losses) == best + 4 < 30
    upto = trained(separable, spec_of(epochs=best + 1, **common))
    assert_same_bits(found.state_dict, upto.state_dict)
    last = {"early_stopping": {"patience": 3, "restore_best": False}}
    all_of_it = trained(separable, spec_of(epochs=best + 4, **common))
    assert_same_bits(trained(separable, spec_of(epochs=30, **common, **last), calibrate=apart).state_dict, all_of_it.state_dict)


def test_early_stopping_watches_the_average_that_becomes_the_model(separable: Table, table: MakeTable) -> None:
    common: dict[str, Any] = {"batch_size": 50, "epochs": 4, "ema": {"decay": 0.9}}
    apart = calibration(table)
    found = trained(separable, spec_of(early_stopping={"patience": 9}, **common), calibrate=apart.data())
    assert_same_bits(found.state_dict, trained(separable, spec_of(**common)).state_dict)
    assert found.calibration_losses == sorted(found.calibration_losses, reverse=True)


def test_early_stopping_needs_samples_to_watch(separable: Table) -> None:
    with pytest.raises(
        ConfigError, match=r"pipeline p: training.early_stopping: .*give the dataset's `split` a share `calibrate`"
    ):
        trained(separable, spec_of(early_stopping={}))


def test_carried_optimizers_go_on_as_if_there_had_been_no_end(separable: Table) -> None:
    """Two epochs in one training, or one after the other: in the order of the set, so that the batches are the same."""
    common: dict[str, Any] = {"optimizer": {"name": "adam", "lr": 0.1}, "shuffle": False, "batch_size": 50}
    carrying: dict[str, Any] = {"use_previous_model": True, "carry_optimizer": True} | common
    first = trained(separable, spec_of(epochs=1, **carrying))
    assert first.optimizers is not None
    given = PreviousModel(first.state_dict, first.architecture, first.optimizers)
    both = trained(separable, spec_of(epochs=2, **common))
    assert_same_bits(trained(separable, spec_of(epochs=1, **carrying), previous=given).state_dict, both.state_dict)
    fresh = trained(separable, spec_of(epochs=1, **common), previous=PreviousModel(first.state_dict, first.architecture))
    assert not torch.equal(weights_of(fresh), weights_of(both))


def test_optimizer_states_that_do_not_fit_are_refused(separable: Table) -> None:
    carrying = {"use_previous_model": True, "carry_optimizer": True}
    first = trained(separable, spec_of(**carrying))
    assert first.optimizers is not None
    for states, complaint in (
        (first.optimizers * 2, "2 optimizers, there are 1"),
        (first.optimizers, "other parameters or groups"),
    ):
        spec = spec_of(optimizer={"groups": [{"parameters": ["weight"]}]}, **carrying)
        with pytest.raises(ConfigError, match=f"pipeline p: training.carry_optimizer: .*{complaint}"):
            trained(separable, spec, previous=PreviousModel(first.state_dict, first.architecture, states))


def test_training_starts_from_given_weights(separable: Table) -> None:
    before = trained(separable, spec_of(epochs=3))
    still = spec_of(optimizer={"name": "sgd", "lr": 1e-30}, initial_weights="file.safetensors")
    bare = {name.removeprefix("body."): tensor for name, tensor in before.state_dict.items() if name.startswith("body.")}
    for weights in (before.state_dict, bare):
        assert_same_bits(trained(separable, still, initial=weights).state_dict, before.state_dict)
    with pytest.raises(ConfigError, match=r"pipeline p: training.initial_weights: does not fit the model"):
        trained(separable, still.model_copy(update={"model": spec_of(model=MLP).model}), initial=bare)


def test_a_compiled_model_of_the_eager_backend_is_the_model(separable: Table) -> None:
    """Its kernels are the same; other backends have others."""
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
