"""Trainings compared with loops written by hand."""

import json
import random
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor, nn

from fastpath import Order
from modyn_dagster.reproducibility.randomness import seed_for
from modyn_dagster.training import (
    FastPath,
    PreviousModel,
    Task,
    TrainingProgress,
    build_predictor,
    train,
)
from tests.training.table import MakeTable, Table, spec_of
from tests.training.trained import CLASSES, assert_same_bits, trained


def by_hand(
    table: Table,
    weights: npt.NDArray[np.float64],
    *,
    model: Callable[[], nn.Module],
    loss: Callable[[Tensor, Tensor], Tensor],
    optimizer: Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer],
    epochs: int,
    batch_size: int,
) -> tuple[nn.Module, list[float]]:
    """The loop a person would write for tensors in memory, with seed 3."""
    columns = np.column_stack([table.columns["left"], table.columns["right"]])
    scaled = torch.tensor((columns - columns.mean(0)) / columns.std(0), dtype=torch.float32)
    truth = torch.tensor(table.labels) if table.labels is not None else torch.tensor(table.targets, dtype=torch.float32)
    w = torch.tensor(weights, dtype=torch.float32)
    torch.manual_seed(seed_for(3, "torch"))
    module = model()
    steps = optimizer(module.parameters())
    means = []
    for epoch in range(epochs):
        order = Order(table.n, shuffle=True, seed=3, epoch=epoch).positions(0, table.n)
        total = 0.0
        for start in range(0, table.n, batch_size):
            at = order[start : start + batch_size]
            value = (loss(module(scaled[at]), truth[at]) * w[at]).sum() / w[at].sum()
            total += value.item() * w[at].sum().item()
            steps.zero_grad()
            value.backward()  # type: ignore[no-untyped-call]  # torch has no type for it
            steps.step()
        means.append(total / w.sum().item())
    return module, means


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
@pytest.mark.parametrize("hidden", [None, [8, 4]])
def test_it_trains_what_a_hand_written_loop_trains(separable: Table, name: str, hidden: list[int] | None) -> None:
    weights = np.linspace(0.5, 3, separable.n)
    model = {"name": "mlp", "hidden": hidden} if hidden else {"name": "logistic_regression"}
    settings = {"lr": 0.05, "weight_decay": 0.01} | ({"momentum": 0.9} if name == "sgd" else {})
    spec = spec_of(model=model, optimizer={"name": name, **settings}, epochs=3, batch_size=64)
    found = trained(separable, spec, weights=weights)

    def build() -> nn.Module:
        if hidden is None:
            return nn.Linear(2, 2)
        return nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2))

    module, means = by_hand(
        separable,
        weights,
        model=build,
        loss=lambda outputs, truth: nn.functional.cross_entropy(outputs, truth, reduction="none"),
        optimizer=lambda p: {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[name](p, **settings),
        epochs=3,
        batch_size=64,
    )
    for key, tensor in module.state_dict().items():
        torch.testing.assert_close(found.state_dict[f"body.{key}"], tensor, rtol=1e-4, atol=1e-5)
    assert found.losses == pytest.approx(means, rel=1e-4)


@pytest.mark.parametrize("loss", ["mse", "l1"])
def test_it_trains_a_regression_as_by_hand(table: MakeTable, loss: str) -> None:
    rng = np.random.default_rng(1)
    left, right = rng.normal(size=(2, 200))
    numbers = table({"left": left, "right": right}, targets=2 * left - right + 1)
    spec = spec_of(loss=loss, optimizer={"name": "sgd", "lr": 0.1}, epochs=4, batch_size=50)
    found = trained(numbers, spec, task=Task("target"))
    module, means = by_hand(
        numbers,
        np.ones(200),
        model=lambda: nn.Linear(2, 1),
        loss=lambda outputs, truth: (outputs[:, 0] - truth) ** 2 if loss == "mse" else (outputs[:, 0] - truth).abs(),
        optimizer=lambda p: torch.optim.SGD(p, lr=0.1),
        epochs=4,
        batch_size=50,
    )
    torch.testing.assert_close(found.state_dict["body.weight"], module.state_dict()["weight"], rtol=1e-4, atol=1e-5)
    assert found.losses == pytest.approx(means, rel=1e-4)
    assert found.losses[-1] < found.losses[0]


def test_a_weight_of_two_counts_like_the_sample_twice(table: MakeTable) -> None:
    rng = np.random.default_rng(2)
    left, labels = rng.normal(size=20), rng.integers(0, 2, 20)
    spec = spec_of(batch_size=100, shuffle=False, epochs=5, standardize=False, optimizer={"name": "sgd", "lr": 0.5})
    weighted = trained(table({"left": left}, labels=labels), spec, weights=np.where(np.arange(20) < 7, 2.0, 1.0))
    twice = np.concatenate([left, left[:7]]), np.concatenate([labels, labels[:7]])
    repeated = trained(table({"left": twice[0]}, labels=twice[1]), spec)
    torch.testing.assert_close(weighted.state_dict, repeated.state_dict)
    assert weighted.losses == pytest.approx(repeated.losses)


def test_separable_classes_are_learnt(separable: Table) -> None:
    found = trained(separable, spec_of(epochs=60, batch_size=32, optimizer={"lr": 0.1}))
    predict = build_predictor(found.architecture, found.state_dict, threads=1, source="p")
    assert (predict(separable.samples).argmax(1) == separable.labels).mean() > 0.98


@pytest.mark.parametrize("threads", [1, 2])
def test_the_same_seed_gives_the_same_bits_whatever_happened_before(separable: Table, user_code: str, threads: int) -> None:
    spec = spec_of(model={"factory": f"{user_code}:restless"}, epochs=2, batch_size=16)
    first = trained(separable, spec, threads=threads)
    torch.manual_seed(99)
    np.random.seed(99)
    random.seed(99)
    second = trained(separable, spec, threads=threads)
    assert_same_bits(first.state_dict, second.state_dict)
    assert (first.losses, first.curve) == (second.losses, second.curve)


def test_another_seed_gives_another_model(separable: Table) -> None:
    spec = spec_of(batch_size=32)
    one, other = trained(separable, spec, seed=1), trained(separable, spec, seed=2)
    assert not torch.equal(one.state_dict["body.weight"], other.state_dict["body.weight"])


@pytest.mark.parametrize("shuffle", [True, False, "blocks"])
def test_the_result_does_not_depend_on_where_the_batches_come_from(separable: Table, shuffle: bool | str) -> None:
    spec = spec_of(model={"name": "mlp", "dropout": 0.2}, epochs=2, batch_size=33, shuffle=shuffle, block_size=50)
    cached = trained(separable, spec)
    streamed = trained(separable, spec, fast_path=FastPath(cache_bytes=0))
    assert_same_bits(cached.state_dict, streamed.state_dict)
    assert (cached.losses, cached.curve) == (streamed.losses, streamed.curve)


def test_progress_names_every_step(separable: Table) -> None:
    seen: list[TrainingProgress] = []
    found = trained(separable, spec_of(epochs=2, batch_size=100), progress=seen.append)
    assert [(p.epoch, p.step) for p in seen] == [(1, 1), (1, 2), (1, 3), (2, 4), (2, 5), (2, 6)]
    assert {(p.n_epochs, p.n_steps) for p in seen} == {(2, 6)}
    assert [(p.step, p.loss) for p in seen] == found.curve


def test_what_is_recorded_is_json_and_counts_right(separable: Table) -> None:
    found = trained(separable, spec_of(epochs=3, batch_size=100))
    assert (found.n_steps, found.n_samples, len(found.losses)) == (9, 300, 3)
    assert json.loads(json.dumps(found.architecture)) == found.architecture
    assert set(found.seconds) == {"prepare", "data", "forward", "backward", "step", "finish"}
    assert all(seconds >= 0 for seconds in found.seconds.values())


def test_arrays_that_may_not_be_written_are_taken(separable: Table) -> None:
    """Training sets and rows come from memory-mapped files."""
    data = separable.data()
    for array in (*data.chosen.partition(0), separable.columns["left"], separable.labels):
        assert array is not None
        array.flags.writeable = False
    spec = spec_of(features=["left"], batch_size=64)
    assert train(spec, data, task=CLASSES, seed=3, threads=1, source="p").n_steps == 5


def test_custom_model_loss_and_optimizer_equal_their_built_in_twins(separable: Table, user_code: str) -> None:
    built_in = spec_of(optimizer={"name": "sgd", "lr": 0.1}, epochs=2)
    custom = spec_of(
        model={"factory": f"{user_code}:linear"},
        loss={"factory": f"{user_code}:scaled_cross_entropy", "config": {"scale": 1.0}},
        optimizer={"factory": f"{user_code}:plain_sgd", "config": {"lr": 0.1}},
        epochs=2,
    )
    one, other = trained(separable, built_in), trained(separable, custom)
    assert torch.equal(one.state_dict["body.weight"], other.state_dict["body.1.weight"])


def test_an_array_of_a_parser_is_trained_on(table: MakeTable, user_code: str) -> None:
    dark, bright = bytes([1, 2, 3, 4]), bytes([200, 210, 220, 230])
    rows = table({}, labels=np.array([0, 1] * 20), blobs=[dark, bright] * 20)
    spec = spec_of(parser="parsing_user_code:images", epochs=30, optimizer={"lr": 0.1})
    found = trained(rows, spec, task=Task("class"))
    predict = build_predictor(found.architecture, found.state_dict, threads=1, source="p")
    assert (predict(rows.samples).argmax(1) == rows.labels).all()


def test_tied_weights_stay_tied(separable: Table, user_code: str) -> None:
    state = trained(separable, spec_of(model={"factory": f"{user_code}:tied"})).state_dict
    assert state["body.first.weight"].data_ptr() == state["body.second.weight"].data_ptr()


@pytest.mark.parametrize("precision", ["bf16-mixed", "64-true"])
def test_other_precisions_learn_too(separable: Table, precision: str) -> None:
    spec = spec_of(precision=precision, epochs=30, batch_size=32, optimizer={"lr": 0.1})
    found = trained(separable, spec)
    assert found.state_dict["body.weight"].dtype == (torch.float64 if precision == "64-true" else torch.float32)
    predict = build_predictor(found.architecture, found.state_dict, threads=1, source="p")
    assert (predict(separable.samples).argmax(1) == separable.labels).mean() > 0.95


@pytest.mark.parametrize(("precision", "digits"), [("64-true", 1e-13), ("32-true", 1e-5)])
def test_a_step_is_as_exact_as_its_precision(separable: Table, precision: str, digits: float) -> None:
    """A logistic regression that begins at zero gives every class the probability 1/2."""
    spec = spec_of(precision=precision, batch_size=300, optimizer={"name": "sgd", "lr": 1.0}, standardize=False)
    dtype = torch.float64 if precision == "64-true" else torch.float32
    start = {"weight": torch.zeros(2, 2, dtype=dtype), "bias": torch.zeros(2, dtype=dtype)}
    weights = np.linspace(0.5, 2, 300).astype(np.float32)
    found = trained(separable, spec, weights=weights, initial=start)
    columns = np.stack([separable.columns["left"], separable.columns["right"]], axis=1)
    assert separable.labels is not None
    slopes = np.stack([separable.labels == 0, separable.labels == 1], axis=1) - 0.5
    expected = (slopes * weights[:, None]).T.astype(np.float64) @ columns / weights.sum(dtype=np.float64)
    np.testing.assert_allclose(found.state_dict["body.weight"].numpy(), expected, rtol=digits)


def test_a_model_of_named_inputs_is_trained_standardised_and_predicts_again(table: MakeTable, user_code: str) -> None:
    rng = np.random.default_rng(5)
    numbers, kinds = rng.normal(50, 9, (400, 2)), rng.integers(0, 4, (400, 2))
    rows = table(
        {"n": numbers, "k": kinds.astype(np.int32)}, labels=(3 * kinds.sum(1) + (numbers[:, 0] - 50) / 3 > 9).astype(np.int64)
    )
    groups = {"numeric": {"columns": ["n"]}, "categorical": {"columns": ["k"], "dtype": "int64"}}
    model = {"factory": f"{user_code}:recommender", "config": {"n_categories": 4}}
    spec = spec_of(model=model, features=groups, epochs=20, batch_size=50, optimizer={"lr": 0.1})
    found = trained(rows, spec)
    np.testing.assert_allclose(found.state_dict["standardize.numeric_columns.mean"].numpy(), numbers.mean(0))
    assert json.loads(json.dumps(found.architecture)) == found.architecture
    predict = build_predictor(found.architecture, found.state_dict, threads=1, source="p")
    assert (predict(rows.samples).argmax(1) == rows.labels).mean() > 0.9
    again = trained(rows, spec, fast_path=FastPath(cache_bytes=0))
    assert_same_bits(found.state_dict, again.state_dict)
    onward = trained(rows, spec, previous=PreviousModel(found.state_dict, found.architecture))
    assert onward.losses[0] < found.losses[0]


def test_names_of_inputs_may_be_those_of_anything(table: MakeTable, user_code: str) -> None:
    rows = table({"n": np.arange(8.0)}, labels=np.arange(8) % 2)
    groups = {"keys": {"columns": ["n"]}, "training": {"columns": ["n"]}}
    spec = spec_of(model={"factory": f"{user_code}:by_keywords"}, features=groups)
    found = trained(rows, spec)
    assert {"standardize.keys_columns.mean", "standardize.training_columns.mean"} <= set(found.state_dict)
