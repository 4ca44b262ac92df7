"""Training of rankings: losses against their definitions, orders of groups, and the same bits wherever samples come from."""

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from fastpath import TrainingSet
from modyn_dagster.catalog.datasets import Column
from modyn_dagster.data.reader import SampleReader
from modyn_dagster.errors import ConfigError, TrainingError
from modyn_dagster.evaluation import score
from modyn_dagster.keys import keys_of
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.spec.tasks.task import RankingTask
from modyn_dagster.training import (
    CheckpointFile,
    FastPath,
    Task,
    TrainedModel,
    TrainingData,
    TrainingProgress,
    build_predictor,
    train,
)
from modyn_dagster.training.inputs.group_order import GroupOrder
from modyn_dagster.training.models.losses import LOSSES
from modyn_dagster.training.transforms.truth import ranking_truth
from tests.examples import examples
from tests.training.rows_on_disk import write_batch
from tests.training.table import Table, spec_of
from tests.training.test_streamed import WAYS
from tests.training.trained import assert_same_bits, trained

TASK = {"kind": "ranking", "group": "query"}
TARGET = Task("target")
N = 240
BIG = (1 << 53) - 2
LAWS = pytest.mark.soak("laws-training")


def spec_for(**fields: Any) -> Any:
    return spec_of(**{"task": TASK, "features": ["x", "y"], "epochs": 3, "batch_size": 32} | fields)


def table(groups: Any = None, n: int = N) -> Table:
    """Samples whose relevance grows with ``x``, and lists that differ in their mean."""
    rng = np.random.default_rng(1)
    query, x, y = rng.integers(0, 30, n), rng.normal(size=n), rng.normal(size=n)
    relevance = np.clip(np.digitize(x + 0.3 * rng.normal(size=n), [0.0, 1.0]), 0, 2)
    named = query if groups is None else np.array([groups(each) for each in query.tolist()])
    return Table({"x": x + query, "y": y, "query": named}, targets=relevance.astype(np.float64))


@st.composite
def batches(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Scores ``[B, 1]``, and relevance and group ``[B, 2]``."""
    n = draw(st.integers(1, 14))
    scores = draw(st.lists(st.floats(-30, 30, width=32), min_size=n, max_size=n))
    relevance = draw(st.lists(st.sampled_from([0.0, 1.0, 2.5, 31.0]), min_size=n, max_size=n))
    groups = draw(st.lists(st.sampled_from([float(BIG), float(BIG + 1), 3.0]), min_size=n, max_size=n))
    return torch.tensor(scores, dtype=torch.float32)[:, None], torch.tensor([relevance, groups], dtype=torch.float64).T


@settings(max_examples=examples(50))
@given(batches())
def test_a_pairwise_loss_is_the_mean_over_the_pairs_of_a_group(case: tuple[Tensor, Tensor]) -> None:
    outputs, targets = case
    scores, truth = outputs[:, 0].tolist(), targets.tolist()
    losses = []
    for i, (relevance, group) in enumerate(truth):
        others = [j for j, (other, same) in enumerate(truth) if same == group and other != relevance]
        differences = [(scores[i] - scores[j]) * np.sign(relevance - truth[j][0]) for j in others]
        losses.append(np.mean([np.logaddexp(0, -each) for each in differences]) if others else 0.0)
    found = LOSSES["pairwise_logistic"](outputs, targets)
    np.testing.assert_allclose(found, losses, rtol=1e-5, atol=1e-6)


@settings(max_examples=examples(50))
@given(batches())
def test_the_listwise_losses_of_a_group_add_up_to_the_cross_entropy_of_torch(case: tuple[Tensor, Tensor]) -> None:
    outputs, targets = case
    found = LOSSES["listwise_softmax"](outputs, targets)
    for group in set(targets[:, 1].tolist()):
        rows = targets[:, 1] == group
        expected = functional.cross_entropy(outputs[rows, 0], targets[rows, 0].softmax(dim=0).float())
        np.testing.assert_allclose(found[rows].sum(), expected, rtol=1e-4, atol=1e-5)


@settings(max_examples=examples(30))
@given(batches(), st.sampled_from(["pairwise_logistic", "listwise_softmax"]))
def test_no_gradient_crosses_groups(case: tuple[Tensor, Tensor], loss: Any) -> None:
    outputs, targets = case
    outputs.requires_grad_()
    losses = LOSSES[loss](outputs, targets)
    for i in range(len(targets)):
        (gradient,) = torch.autograd.grad(losses[i], outputs, retain_graph=True)
        assert torch.isfinite(gradient).all()
        assert not gradient[targets[:, 1] != targets[i, 1]].any()


@settings(max_examples=examples(40))
@given(st.lists(st.integers(0, 6), min_size=1, max_size=40), st.integers(0, 5), st.integers(0, 3))
def test_an_epoch_visits_every_sample_once_and_group_after_group(numbers: list[int], seed: int, epoch: int) -> None:
    _, groups = np.unique(numbers, return_inverse=True)
    order = GroupOrder(groups.astype(np.int64), np.arange(len(groups), dtype=np.float32))
    for subset in (order.shuffled(seed=seed, epoch=epoch), order.in_order()):
        assert sorted(subset.positions.tolist()) == list(range(len(groups)))
        assert np.count_nonzero(np.diff(groups[subset.positions])) == len(set(numbers)) - 1
        assert (subset.weights == subset.positions).all()
        assert subset.pool_weight is None
    assert (order.shuffled(seed=seed, epoch=epoch).positions == order.shuffled(seed=seed, epoch=epoch).positions).all()


def test_every_epoch_has_another_order_of_groups() -> None:
    order = GroupOrder(np.arange(50, dtype=np.int64), np.ones(50, np.float32))
    assert len({tuple(order.shuffled(seed=0, epoch=epoch).positions) for epoch in range(5)}) == 5


def gain_of(model: TrainedModel, samples: Table) -> float:
    predict = build_predictor(model.architecture, model.state_dict, threads=1, source="p")
    truth, found = predict.judged(samples.samples).targets, predict(samples.samples)
    assert truth is not None
    return score("ndcg", found, truth).value or 0.0


@pytest.mark.parametrize(("loss", "shuffle"), [("pairwise_logistic", True), ("listwise_softmax", False)])
def test_a_model_learns_the_order_within_lists_alone(loss: str, shuffle: bool) -> None:
    spec = spec_for(loss=loss, shuffle=shuffle, epochs=8, optimizer={"name": "adamw", "lr": 0.2})
    found = trained(table(), spec, task=TARGET)
    assert found.state_dict["body.weight"].shape == (1, 2)
    assert gain_of(found, table()) > 0.95
    assert found.losses[-1] < found.losses[0]


def test_names_of_groups_do_not_matter_even_where_float32_could_not_tell_them_apart() -> None:
    spec = spec_for(epochs=1)
    first = trained(table(), spec, task=TARGET)
    for name in (str, lambda each: BIG - each, lambda each: -(2**60) - each, float):
        other = trained(table(name), spec, task=TARGET)
        assert_same_bits(other.state_dict, first.state_dict)


def by_first_sample(groups: list[float]) -> list[int]:
    """Rows with those of a group together, groups by their first row."""
    return sorted(range(len(groups)), key=lambda row: groups.index(groups[row]))


def loss_of(model: TrainedModel, samples: Table, rows: Any, weights: Any, batch_size: int) -> float:
    """Mean loss where each batch of rows is compared with itself."""
    outputs = torch.from_numpy(build_predictor(model.architecture, model.state_dict, threads=1, source="p")(samples.samples))
    truth = torch.from_numpy(ranking_truth(samples.samples, RankingTask.model_validate(TASK), source="p"))
    parts = [rows[start : start + batch_size] for start in range(0, len(rows), batch_size)]
    losses = torch.cat([LOSSES["pairwise_logistic"](outputs[part], truth[part]) for part in parts])
    return float(np.average(losses, weights=weights[rows]))


@pytest.mark.parametrize("shuffle", [True, False])
def test_batches_hold_groups_and_weights_of_samples_count(shuffle: bool) -> None:
    data, weights = table(), np.where(np.arange(N) % 3, 1.0, 4.0).astype(np.float32)
    spec = spec_for(epochs=1, batch_size=25, shuffle=shuffle, optimizer={"name": "sgd", "lr": 1e-30})
    found = trained(data, spec, weights=weights, task=TARGET)
    groups = data.columns["query"].tolist()
    numbers = np.array([sorted(set(groups), key=groups.index).index(group) for group in groups])
    shuffled = GroupOrder(numbers, weights).shuffled(seed=3, epoch=0).positions
    rows = shuffled if shuffle else np.array(by_first_sample(groups))
    assert found.losses == [pytest.approx(loss_of(found, data, rows, weights, 25), rel=1e-4)]
    assert found.losses != [pytest.approx(loss_of(found, data, np.arange(N), weights, 25), rel=1e-2)]


@pytest.mark.parametrize(("precision", "loss"), [("64-true", "listwise_softmax"), ("bf16-mixed", "pairwise_logistic")])
def test_every_precision_learns_the_same_to_its_digits(precision: str, loss: str) -> None:
    expected = trained(table(), spec_for(loss=loss, accumulate=2), task=TARGET).losses
    found = trained(table(), spec_for(loss=loss, accumulate=2, precision=precision), task=TARGET).losses
    assert found == pytest.approx(expected, rel=1e-5 if precision == "64-true" else 0.05)


def test_early_stopping_compares_the_groups_of_the_calibration_samples() -> None:
    apart = table(n=60)
    found = trained(table(), spec_for(epochs=1, early_stopping={}, batch_size=20), task=TARGET, calibrate=apart.data())
    rows = np.array(by_first_sample(apart.columns["query"].tolist()))
    assert found.calibration_losses == [pytest.approx(loss_of(found, apart, rows, np.ones(60), 20), rel=1e-5)]


def reader_of(home: Path) -> SampleReader:
    """The samples of the table as rows of a CSV file in two batches."""
    samples, indexes = table(lambda each: f"q{each}").samples, {}
    columns = [Column("x", "float64"), Column("y", "float64"), Column("query", "string")]
    for ordinal, part in enumerate((slice(0, 100), slice(100, N))):
        lines = [
            f"{x!r},{y!r},{q}".encode()
            for x, y, q in zip(*(samples.columns[name][part].tolist() for name in ("x", "y", "query")))
        ]
        labels: Any = samples.targets[part] if samples.targets is not None else None
        indexes[ordinal] = write_batch(home, "d", ordinal, b"".join(lines), [*map(len, lines)], labels)
    content = {"name": "d", "root": str(home), "format": {"kind": "csv"}, "time": {"source": "mtime"}}
    label = {"kind": "target", "from": {"source": "column", "column": "relevance"}}
    spec = DatasetSpec.model_validate(content | {"label": label, "batches": {"kind": "directory"}})
    return SampleReader(spec, columns, root=str(home), home=home, indexes=indexes)


def test_every_way_of_reading_gives_the_bits_of_samples_in_memory(tmp_path: Path) -> None:
    reader, spec = reader_of(tmp_path), spec_for()
    keys = np.concatenate([keys_of(0, np.arange(100)), keys_of(1, np.arange(N - 100))])
    weights = np.linspace(0.5, 2, N).astype(np.float32)
    expected = trained(table(), spec, weights=weights, task=TARGET)
    with reader.store:
        for way in WAYS[1:]:
            found = fitted(TrainingData(TrainingSet.of(keys, weights), reader, way), spec)
            assert_same_bits(found.state_dict, expected.state_dict)
            assert found.losses == expected.losses


def fitted(data: TrainingData, spec: Any, **options: Any) -> TrainedModel:
    return train(spec, data, task=TARGET, seed=3, threads=1, source="pipeline p", **options)


class Broken(Exception):
    pass


@pytest.mark.parametrize("at", [pytest.param(2, marks=LAWS), 9, pytest.param(17, marks=LAWS)])
def test_a_training_that_was_broken_off_ends_with_the_same_bits(at: int, tmp_path: Path) -> None:
    fields = {"checkpoint": {"steps": 1}, "model": {"name": "mlp", "hidden": [4], "dropout": 0.3}, "early_stopping": {}}
    spec = spec_for(**fields)

    def stop(progress: TrainingProgress) -> None:
        if progress.step == at:
            raise Broken

    def run(data: TrainingData, **options: Any) -> TrainedModel:
        return fitted(data, spec, calibrate=table(n=60).data(), **options)

    whole, path = run(table().data()), CheckpointFile(tmp_path / "checkpoint.safetensors")
    with contextlib.suppress(Broken):
        run(table().data(), checkpoint=path, progress=stop)
    resumed = run(table().data(fast_path=FastPath(cache_bytes=0, threads=2)), checkpoint=path)
    assert_same_bits(resumed.state_dict, whole.state_dict)
    assert (resumed.losses, resumed.calibration_losses) == (whole.losses, whole.calibration_losses)


WRONG_GROUPS: dict[str, tuple[npt.NDArray[Any], str]] = {
    "missing": (np.where(np.arange(N) == 7, np.nan, 1.0), "is nan; every sample needs a group"),
    "fraction": (np.where(np.arange(N) == 7, 0.5, 1.0), "is 0.5; every sample needs a group"),
    "empty": (np.where(np.arange(N) == 7, "", "a").astype(object), "is ''; every sample needs a group"),
    "none": (np.array([None if i == 7 else "a" for i in range(N)], object), "is None; every sample needs a group"),
}


@pytest.mark.parametrize("case", WRONG_GROUPS)
def test_a_sample_without_a_group_is_named_with_its_key(case: str) -> None:
    column, rule = WRONG_GROUPS[case]
    data = table()
    data.columns = dict(data.columns) | {"query": column}
    key = rf"training\.task\.group: column 'query' of the sample with key {data.keys[7]} "
    with pytest.raises(TrainingError, match=key + rule):
        trained(data, spec_for(), task=TARGET)


def test_a_column_that_holds_no_groups_is_named() -> None:
    data = table()
    data.columns = dict(data.columns) | {"query": np.ones(N, np.bool_)}
    with pytest.raises(TrainingError, match=r"column 'query' is bool\[240\], expected a whole number or text per sample"):
        trained(data, spec_for(), task=TARGET)
    del data.columns["query"]
    with pytest.raises(TrainingError, match=r"training\.task\.group: the samples have no column 'query'; they have x, y"):
        trained(data, spec_for(), task=TARGET)


@pytest.mark.parametrize(("value", "rule"), [(32, "is 32; it must be 0 to 31"), (-1, "is -1; it must be 0 to 31")])
def test_a_relevance_without_a_gain_is_named_with_its_key(value: float, rule: str) -> None:
    data = table()
    assert data.targets is not None
    data.targets[7] = value
    with pytest.raises(TrainingError, match=rf"the relevance of the sample with key {data.keys[7]} {rule}"):
        trained(data, spec_for(), task=TARGET)


def test_a_missing_relevance_is_named_with_its_key() -> None:
    data = table()
    assert data.targets is not None
    data.targets[7] = np.nan
    with pytest.raises(TrainingError, match=rf"the sample with key {data.keys[7]} has no label"):
        trained(data, spec_for(), task=TARGET)


@pytest.mark.parametrize(
    ("fields", "field", "rule"),
    [
        ({"shuffle": "blocks"}, "shuffle", "use true, which shuffles groups"),
        ({"downsampling": {"policy": "uniform"}}, "downsampling", "chooses samples one by one"),
        ({"features": ["x", "query"]}, "features", "is training.task.group"),
        ({"loss": "mse"}, "loss", "the task is ranking: use pairwise_logistic or listwise_softmax"),
        ({"ranks": 2}, "ranks", "share a part of every batch"),
        (
            {"model": {"name": "sklearn", "estimator": "sklearn.linear_model:Ridge"}},
            r"task\.kind",
            "needs a network, lightgbm or xgboost",
        ),
    ],
)
def test_settings_that_tear_groups_apart_are_refused(fields: dict[str, Any], field: str, rule: str) -> None:
    with pytest.raises(ConfigError, match=rf"pipeline p: training\.{field}: .*{rule}"):
        trained(table(), spec_for(**fields), task=TARGET)
