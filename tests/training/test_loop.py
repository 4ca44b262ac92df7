import json
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor, nn

from fastpath import Order, TrainingSet
from modyn_dagster.errors import ConfigError, NonFiniteLoss, TrainingError, WrongShape
from modyn_dagster.randomness import seed_for
from modyn_dagster.spec.training import TaskKind, TrainingSpec
from modyn_dagster.training import (
    FastPath,
    PreviousModel,
    Task,
    TrainedModel,
    TrainingData,
    TrainingProgress,
    build_predictor,
    train,
)
from tests.training.table import FASTEST, MakeTable, Table, spec_of

CLASSES = Task("class", exclude=frozenset({"label"}))


def trained(
    table: Table,
    spec: TrainingSpec,
    *,
    weights: npt.ArrayLike | None = None,
    task: Task = CLASSES,
    fast_path: FastPath = FASTEST,
    **options: Any,
) -> TrainedModel:
    fixed: dict[str, Any] = {"seed": 3, "threads": 1, "source": "pipeline p"}
    return train(spec, table.data(weights, fast_path), task=task, **fixed | options)


def assert_same_bits(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> None:
    assert list(one) == list(other)
    for name, tensor in one.items():
        assert tensor.dtype == other[name].dtype
        assert tensor.numpy().tobytes() == other[name].numpy().tobytes(), name


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
            value.backward()  # type: ignore[no-untyped-call]
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


def test_standardisation_is_stored_in_the_model(separable: Table) -> None:
    state = trained(separable, spec_of()).state_dict
    columns = np.column_stack([separable.columns["left"], separable.columns["right"]])
    np.testing.assert_allclose(state["standardize.mean"].numpy(), columns.mean(0), rtol=1e-12)
    np.testing.assert_allclose(state["standardize.factor"].numpy(), 1 / columns.std(0), rtol=1e-12)


def test_without_standardisation_the_model_sees_the_columns_as_they_are(separable: Table, user_code: str) -> None:
    spec = spec_of(
        standardize=False, model={"factory": f"{user_code}:identity"}, optimizer={"lr": 1e-30}, features=["left", "right"]
    )
    found = trained(separable, spec)
    assert list(found.state_dict) == ["body.shift"]
    predict = build_predictor(found.architecture, found.state_dict, threads=1, source="p")
    left = separable.columns["left"].astype(np.float32)
    np.testing.assert_allclose(predict(separable.samples)[:, 0], left, rtol=1e-6)


def test_the_previous_model_is_where_training_starts(separable: Table) -> None:
    before = trained(separable, spec_of(epochs=3))
    still = spec_of(optimizer={"name": "sgd", "lr": 1e-30})
    after = trained(separable, still, previous=PreviousModel(before.state_dict, before.architecture))
    assert_same_bits(before.state_dict, after.state_dict)


def test_standardisation_is_fitted_again_to_the_new_training_set(separable: Table, table: MakeTable) -> None:
    before = trained(separable, spec_of())
    moved = table({"left": separable.columns["left"] + 9, "right": separable.columns["right"]}, labels=separable.labels)
    after = trained(moved, spec_of(), previous=PreviousModel(before.state_dict, before.architecture))
    shift = after.state_dict["standardize.mean"] - before.state_dict["standardize.mean"]
    torch.testing.assert_close(shift, torch.tensor([9.0, 0.0], dtype=torch.float64))


@pytest.mark.parametrize(
    ("other", "complaint"),
    [
        ({"features": ["left"]}, "saw other features"),
        ({"model": {"name": "mlp"}}, "has other weights"),
    ],
)
def test_a_previous_model_that_does_not_fit_is_refused(separable: Table, other: dict[str, object], complaint: str) -> None:
    before = trained(separable, spec_of(**other))
    with pytest.raises(ConfigError, match=f"pipeline p: training.use_previous_model: the previous model {complaint}"):
        trained(separable, spec_of(), previous=PreviousModel(before.state_dict, before.architecture))


def test_a_class_that_the_previous_model_did_not_know_is_an_error_that_says_how_to_pin_classes(
    separable: Table, table: MakeTable
) -> None:
    before = trained(separable, spec_of())
    more = table({**separable.columns}, labels=np.arange(300) % 3)
    with pytest.raises(ConfigError, match="has 2 outputs, this training set needs 3; pin `classes` or `n_classes`"):
        trained(more, spec_of(), previous=PreviousModel(before.state_dict, before.architecture))


def test_arrays_that_may_not_be_written_are_taken(separable: Table) -> None:
    """Training sets and rows come from memory-mapped files."""
    data = separable.data()
    for array in (*data.chosen.partition(0), separable.columns["left"], separable.labels):
        assert array is not None
        array.flags.writeable = False
    spec = spec_of(features=["left"], batch_size=64)
    assert train(spec, data, task=CLASSES, seed=3, threads=1, source="p").n_steps == 5


def test_a_class_that_is_absent_this_time_keeps_its_output(separable: Table, table: MakeTable) -> None:
    three = table({**separable.columns}, labels=np.arange(300) % 3)
    before = trained(three, spec_of())
    after = trained(separable, spec_of(), previous=PreviousModel(before.state_dict, before.architecture))
    assert after.architecture["n_outputs"] == 3


@pytest.mark.parametrize(
    ("n_classes", "labels", "expected"), [(None, [0, 0], 2), (None, [0, 4], 5), (7, [0, 1], 7), (1, [0, 0], 2)]
)
def test_outputs_follow_the_classes(table: MakeTable, n_classes: int | None, labels: list[int], expected: int) -> None:
    found = trained(table({"left": np.arange(2.0)}, labels=np.array(labels)), spec_of(), task=Task("class", n_classes))
    assert found.architecture["n_outputs"] == expected


def test_a_class_beyond_the_pinned_ones_is_refused_with_its_key(table: MakeTable) -> None:
    rows = table({"left": np.arange(3.0)}, labels=np.array([0, 1, 2]))
    with pytest.raises(TrainingError, match=rf"key {rows.keys[2]} has class 2, the dataset allows classes 0 to 1"):
        trained(rows, spec_of(), task=Task("class", 2))


@pytest.mark.parametrize(
    ("task", "truth"),
    [("class", {"labels": np.array([0, -1, 1])}), ("target", {"targets": np.array([0.5, np.nan, 1])})],
)
def test_a_sample_without_a_label_is_refused_with_its_key(
    table: MakeTable, task: TaskKind, truth: dict[str, npt.NDArray[Any]]
) -> None:
    rows = table({"left": np.arange(3.0)}, **truth)
    with pytest.raises(TrainingError, match=f"key {rows.keys[1]} has no label"):
        trained(rows, spec_of(), task=Task(task))


def test_a_dataset_without_labels_cannot_be_learnt(table: MakeTable) -> None:
    with pytest.raises(ConfigError, match="no such label to learn"):
        trained(table({"left": np.arange(3.0)}), spec_of())


@pytest.mark.parametrize(("loss", "task"), [("mse", "class"), ("cross_entropy", "target")])
def test_a_loss_for_another_task_is_refused(separable: Table, loss: str, task: TaskKind) -> None:
    with pytest.raises(ConfigError, match=r"pipeline p: training.loss: the dataset's label is a"):
        trained(separable, spec_of(loss=loss), task=Task(task))


def test_an_empty_training_set_is_refused() -> None:
    with pytest.raises(TrainingError, match="training set is empty"):
        TrainingData(TrainingSet.of(np.empty(0, np.uint64)), Table({}))


@pytest.mark.parametrize("weight", [0.0, -1.0, np.nan, np.inf])
def test_a_weight_that_is_not_positive_is_refused_with_its_key(separable: Table, weight: float) -> None:
    weights = np.ones(300)
    weights[4] = weight
    with pytest.raises(TrainingError, match=f"the weight of key {separable.keys[4]} is"):
        separable.data(weights)


def test_a_model_of_the_wrong_shape_is_refused_naming_both_shapes(table: MakeTable, user_code: str) -> None:
    rows = table({"a": np.arange(8.0), "b": np.arange(8.0), "c": np.arange(8.0)}, labels=np.arange(8) % 2)
    with pytest.raises(
        WrongShape, match=r"pipeline p: training.model: the model returned shape \(8, 3\), expected \(8, 2\)"
    ) as caught:
        trained(rows, spec_of(model={"factory": f"{user_code}:identity"}))
    assert (caught.value.expected, caught.value.found) == ((8, 2), (8, 3))


def test_a_loss_that_is_already_a_mean_is_refused(separable: Table, user_code: str) -> None:
    spec = spec_of(loss={"factory": f"{user_code}:mean_loss"}, batch_size=50)
    with pytest.raises(WrongShape, match=r"pipeline p: training.loss: the loss returned shape \(\), expected \(50\)"):
        trained(separable, spec)


def test_a_model_that_raises_is_an_error_naming_pipeline_and_field(separable: Table, user_code: str) -> None:
    with pytest.raises(TrainingError, match=r"pipeline p: training.model: the model failed: KeyError: 'no such layer'"):
        trained(separable, spec_of(model={"factory": f"{user_code}:failing"}))


def test_a_loss_that_is_not_finite_stops_with_step_and_keys_before_the_optimizer_step(separable: Table, user_code: str) -> None:
    spec = spec_of(loss={"factory": f"{user_code}:poisoned_loss"}, batch_size=10, shuffle=False)
    steps: list[TrainingProgress] = []
    with pytest.raises(NonFiniteLoss, match="the loss is nan at step 3") as caught:
        trained(separable, spec, progress=steps.append)
    assert (caught.value.step, caught.value.keys) == (3, separable.keys[20:30].tolist())
    assert len(steps) == 2


def test_weights_that_overflow_in_the_last_step_are_not_a_model(separable: Table) -> None:
    spec = spec_of(batch_size=300, optimizer={"name": "sgd", "lr": 3e37}, standardize=False)
    with pytest.raises(TrainingError, match=r"body\.weight is not finite after step 1"):
        trained(separable, spec)


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


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"model": {"factory": "{}:linear", "config": {"bais": False}}},
            r"training.model.config: .*:linear refused it: TypeError",
        ),
        ({"model": {"factory": "{}:not_a_module"}}, r"training.model.factory: must return a torch.nn.Module, not object"),
        ({"model": {"factory": "{}:frozen"}}, r"training.model: has no parameter that can be trained"),
        ({"loss": {"factory": "{}:linear"}}, r"training.loss.config: .*refused it: TypeError"),
        ({"optimizer": {"factory": "{}:not_an_optimizer"}}, r"training.optimizer.factory: must return a torch.optim.Optimizer"),
    ],
)
def test_user_code_that_builds_nothing_usable_is_refused_naming_the_field(
    separable: Table, user_code: str, fields: dict[str, Any], message: str
) -> None:
    filled = json.loads(json.dumps(fields).replace("{}", user_code))
    with pytest.raises(ConfigError, match=f"pipeline p: {message}"):
        trained(separable, spec_of(**filled))


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


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_cuda_on_a_machine_without_is_refused(separable: Table) -> None:
    with pytest.raises(ConfigError, match=r"pipeline p: training.device: this machine has no CUDA device"):
        trained(separable, spec_of(device="cuda"))
    with pytest.raises(ConfigError, match=r"pipeline p: training.precision: needs a CUDA device"):
        trained(separable, spec_of(device="auto", precision="16-mixed"))


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
