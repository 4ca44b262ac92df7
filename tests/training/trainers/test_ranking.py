"""Rankings by boosted trees: those that the libraries fit by hand, and what does not go with them."""

from typing import Any

import numpy as np
import pytest

from modyn_dagster.errors import TrainingError
from modyn_dagster.progress import TrainingProgress
from modyn_dagster.training import Task, TrainedModel, build_predictor
from modyn_dagster.training.trainers.refusals import trainer_errors
from tests.training.table import Table
from tests.training.trained import assert_same_bits, trained
from tests.training.trainers.fitted import content, plain, previous
from tests.training.trainers.test_refused import dataset, pipeline

lightgbm = pytest.importorskip("lightgbm")
xgboost = pytest.importorskip("xgboost")

SEED = 3
N = 240
WEIGHTS = np.linspace(0.5, 4.0, N).astype(np.float32)
TASK = {"kind": "ranking", "group": "query"}


def lists(seed: int = 5) -> Table:
    """Lists in a mixed order, with relevances 0 to 2."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(N, 2))
    relevance = np.digitize(x[:, 0] + 0.5 * rng.normal(size=N), [0.0, 1.0]).astype(np.float64)
    query = np.array([f"q{each}" for each in rng.integers(0, 24, N)], object)
    return Table({"x": x[:, 0], "y": x[:, 1], "query": query}, targets=relevance)


def by_group(table: Table) -> tuple[Any, Any, Any]:
    """Order of the rows with those of a list together, inputs, and relevances as a library takes them."""
    names = table.columns["query"].tolist()
    order = np.array(sorted(range(N), key=lambda row: names.index(names[row])))
    assert table.targets is not None
    return order, inputs_of(table)[order], table.targets[order]


def inputs_of(table: Table) -> Any:
    return np.ascontiguousarray(np.column_stack([table.columns["x"], table.columns["y"]]), np.float32)


def queries(table: Table, order: Any) -> Any:
    names = table.columns["query"].tolist()
    return np.array([sorted(set(names), key=names.index).index(names[row]) for row in order])


def in_lightgbm(table: Table, objective: str, weights: Any, before: Any = None) -> Any:
    order, x, y = by_group(table)
    sizes = np.bincount(queries(table, order))
    data = lightgbm.Dataset(x, y, group=sizes, weight=None if weights is None else weights[order])
    fixed = {"num_threads": 1, "seed": SEED, "deterministic": True, "force_col_wise": True, "verbosity": -1}
    return lightgbm.train({"objective": objective, **fixed}, data, 4, init_model=before).predict


def in_xgboost(table: Table, objective: str, _weights: Any, before: Any = None) -> Any:
    order, x, y = by_group(table)
    data = xgboost.DMatrix(x, y, qid=queries(table, order))
    model = xgboost.train({"objective": objective, "nthread": 1, "seed": SEED}, data, 4, xgb_model=before)
    return lambda rows: model.predict(xgboost.DMatrix(rows))


def fitted(table: Table, model: dict[str, Any], **options: Any) -> TrainedModel:
    fields = options.pop("fields", {})
    return trained(table, plain(model, task=TASK, features=["x", "y"], **fields), task=Task("target"), **options)


def scores(model: TrainedModel, table: Table) -> Any:
    return build_predictor(model.architecture, model.state_dict, threads=1, source="p")(table.samples)[:, 0]


@pytest.mark.parametrize(
    ("name", "objective", "weights"),
    [
        ("lightgbm", None, None),
        ("lightgbm", None, WEIGHTS),
        ("lightgbm", "rank_xendcg", None),
        ("xgboost", None, None),
        ("xgboost", "rank:pairwise", None),
    ],
)
def test_a_ranking_is_that_of_the_library_given_groups_by_hand(name: str, objective: str | None, weights: Any) -> None:
    table, parameters = lists(), {} if objective is None else {"objective": objective}
    found = fitted(table, {"name": name, "rounds": 4, "parameters": parameters}, weights=weights)
    by_hand, default = (in_lightgbm, "lambdarank") if name == "lightgbm" else (in_xgboost, "rank:ndcg")
    normed = None if weights is None else weights.astype(np.float64) / (weights.sum(dtype=np.float64) / N)
    expected = by_hand(table, objective or default, normed)(inputs_of(table))
    np.testing.assert_array_equal(scores(found, table), expected.astype(np.float32))
    assert 0 < found.losses[0] < np.log(2)


@pytest.mark.parametrize("name", ["lightgbm", "xgboost"])
def test_a_ranking_goes_on_from_its_previous_model_with_the_same_bits(name: str) -> None:
    model, fields = {"name": name, "rounds": 3}, {"use_previous_model": True}
    first = fitted(lists(), model, fields=fields)
    one, other = (fitted(lists(6), model, fields=fields, previous=previous(first)) for _ in range(2))
    assert_same_bits(one.state_dict, other.state_dict)
    assert content(one) != content(first)


@pytest.mark.parametrize("name", ["lightgbm", "xgboost"])
def test_the_curve_of_a_ranking_falls_as_its_gain_grows(name: str) -> None:
    shown: list[TrainingProgress] = []
    found = fitted(lists(), {"name": name, "rounds": 8}, progress=shown.append)
    curve = [loss for _, loss in found.curve]
    assert len(curve) == len(shown) == 8
    assert 0 <= curve[-1] < curve[0] < 0.6


def test_xgboost_weighs_no_samples_of_a_ranking() -> None:
    with pytest.raises(TrainingError, match="xgboost cannot weigh samples"):
        fitted(lists(), {"name": "xgboost", "rounds": 2}, weights=WEIGHTS)


def test_a_fractional_relevance_is_the_librarys_error() -> None:
    table = lists()
    assert table.targets is not None
    table.targets[7] = 0.5
    with pytest.raises(TrainingError, match=r"training\.model: lightgbm failed: LightGBMError: label should be int type"):
        fitted(table, {"name": "lightgbm", "rounds": 2})


def test_a_relevance_beyond_the_gains_of_lightgbm_needs_gains_of_its_own() -> None:
    table, model = lists(), {"name": "lightgbm", "rounds": 2}
    assert table.targets is not None
    table.targets[7] = 31
    with pytest.raises(TrainingError, match="Label 31 is not less than the number of label mappings"):
        fitted(table, model)
    assert np.isfinite(scores(fitted(table, model | {"parameters": {"label_gain": list(range(32))}}), table)).all()


def errors_of(model: dict[str, Any], **fields: Any) -> list[str]:
    training = {"task": TASK} | fields.pop("training", {})
    return [str(error) for error in trainer_errors(pipeline(model, training=training, **fields), dataset("target"))]


@pytest.mark.parametrize("name", ["lightgbm", "xgboost"])
def test_boosting_of_rankings_passes_its_trial(name: str) -> None:
    assert errors_of({"name": name}) == []
    assert errors_of({"name": name}, training={"use_previous_model": True}) == []


def test_what_does_not_go_with_a_ranking_is_refused_by_field() -> None:
    balanced = {"strategy": {"kind": "balanced", "size": 5}}
    assert errors_of({"name": "lightgbm"}, selection=balanced) == []
    [error] = errors_of({"name": "xgboost"}, selection=balanced)
    assert "selection.strategy.weights: gives samples weights, and xgboost takes none" in error
    [error] = errors_of({"name": "lightgbm", "parameters": {"objective": "l2"}})
    assert "parameters.objective: the task is ranking: use one of lambdarank, rank_xendcg" in error
    [error] = errors_of({"name": "xgboost", "parameters": {"objective": "reg:squarederror"}})
    assert "parameters.objective: the task is ranking: use one of rank:ndcg, rank:map, rank:pairwise" in error
