"""Tables, and transforms of them, that tests of transforms share."""

from typing import Any

import numpy as np

from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training import Predictor, TrainedModel, build_predictor
from tests.training.table import Table, spec_of

CODE = "transforming_user_code"


def function(name: str, **fields: Any) -> dict[str, Any]:
    return {"function": f"{CODE}:{name}"} | fields


def mark(name: str, **fields: Any) -> dict[str, Any]:
    return {"factory": f"{CODE}:marked", "config": {"mark": name}, "per": "batch"} | fields


def numbers(n: int = 60, factor: float = 1.0) -> Table:
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 2, n)
    values = (rng.normal(labels, 1).astype(np.float32) * np.float32(factor)).astype(np.float64)
    return Table({"x": values, "y": values[::-1].copy()}, labels=labels)


def pictures(n: int = 40) -> Table:
    """Bytes of 6 x 6 pixels."""
    rng = np.random.default_rng(2)
    return Table({}, labels=rng.integers(0, 2, n), blobs=[rng.bytes(36) for _ in range(n)])


def spec(*transforms: dict[str, Any], **fields: Any) -> TrainingSpec:
    return spec_of(**{"transforms": list(transforms), "epochs": 2, "batch_size": 20, "standardize": False} | fields)


def predictor(model: TrainedModel) -> Predictor:
    return build_predictor(model.architecture, model.state_dict, threads=1, source="p")
