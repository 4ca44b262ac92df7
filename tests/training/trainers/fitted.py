"""Trainings by trainers on a small table, and the arrays that their libraries would be given by hand."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.spec.training import TaskKind, TrainingSpec
from modyn_dagster.training import PreviousModel, Task, TrainedModel, build_predictor
from tests.training.table import Table, spec_of
from tests.training.trained import trained

N: Final = 240
COLUMNS: Final = ("a", "b", "c")


def sklearn(estimator: str, **parameters: Any) -> dict[str, Any]:
    return {"name": "sklearn", "estimator": f"sklearn.{estimator}", "parameters": parameters}


def river(estimator: str, **parameters: Any) -> dict[str, Any]:
    return {"name": "river", "estimator": f"river.{estimator}", "parameters": parameters}


def estimator(path: str, **parameters: Any) -> dict[str, Any]:
    """An estimator among the parameters of another."""
    return {"estimator": path, "parameters": parameters}


#: One model of each kind that is stored in its own way.
CLASSIFIERS: Final[dict[str, dict[str, Any]]] = {
    "sklearn": sklearn("linear_model:LogisticRegression"),
    "forest": sklearn("ensemble:RandomForestClassifier", n_estimators=3),
    "histograms": sklearn("ensemble:HistGradientBoostingClassifier", max_iter=3),
    "network": sklearn("neural_network:MLPClassifier", hidden_layer_sizes=[4], max_iter=4),
    "neighbours": sklearn("neighbors:KNeighborsClassifier", n_neighbors=3),
    "pipeline": sklearn(
        "pipeline:Pipeline",
        steps=[
            ["scale", estimator("sklearn.preprocessing:StandardScaler")],
            ["bayes", estimator("sklearn.naive_bayes:GaussianNB")],
        ],
    ),
    "lightgbm": {"name": "lightgbm", "rounds": 3},
    "xgboost": {"name": "xgboost", "rounds": 3},
    "river": river("tree:HoeffdingTreeClassifier"),
    "river bayes": river("naive_bayes:GaussianNB"),
    "river pipeline": river(
        "compose:Pipeline",
        steps=[
            ["scale", estimator("river.preprocessing:StandardScaler")],
            ["model", estimator("river.forest:ARFClassifier", n_models=2)],
        ],
    ),
}


def classes(n: int = N, seed: int = 7) -> Table:
    """Samples of three classes."""
    rng = np.random.default_rng(seed)
    columns = rng.normal(size=(n, 3))
    labels = (columns[:, 0] + columns[:, 1] > 0).astype(np.int64) + (columns[:, 2] > 1)
    return Table(dict(zip(COLUMNS, columns.T, strict=True)), labels=labels)


def targets(n: int = N) -> Table:
    rng = np.random.default_rng(8)
    columns = rng.normal(size=(n, 3))
    return Table(dict(zip(COLUMNS, columns.T, strict=True)), targets=columns[:, 0] * 3 + rng.normal(size=n))


def matrix(table: Table) -> npt.NDArray[np.float32]:
    """Inputs without standardisation."""
    return np.ascontiguousarray(np.column_stack([table.columns[name] for name in COLUMNS]), dtype=np.float32)


def plain(model: dict[str, Any], **fields: Any) -> TrainingSpec:
    return spec_of(model=model, standardize=False, **fields)


def fitted(table: Table, spec: TrainingSpec, **options: Any) -> TrainedModel:
    kind: TaskKind = "class" if table.labels is not None else "target"
    return trained(table, spec, task=Task(kind, 3 if kind == "class" else None), **options)


def outputs(model: TrainedModel, table: Table) -> npt.NDArray[np.float32]:
    return build_predictor(model.architecture, model.state_dict, threads=1, source="p")(table.samples)


def content(model: TrainedModel) -> bytes:
    return model.state_dict["body.content"].numpy().tobytes()


def logits(probabilities: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Outputs of a trainer with these probabilities."""
    found: npt.NDArray[np.float32] = np.log(
        np.clip(np.asarray(probabilities, np.float64), np.finfo(np.float32).tiny, None)
    ).astype(np.float32)
    return found


def previous(model: TrainedModel) -> PreviousModel:
    return PreviousModel(model.state_dict, model.architecture)
