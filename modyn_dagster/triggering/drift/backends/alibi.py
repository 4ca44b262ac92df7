"""Detectors of alibi-detect, an optional library under the Business Source License 1.1 (docs/dependencies.md)."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from modyn_dagster.imports import import_callable
from modyn_dagster.spec.triggers.drift import BackendMetric
from modyn_dagster.triggering.drift.backends.third_party import (
    SOURCE,
    isolated_randomness,
    load,
    reduced,
    refused_config,
    unknown_metric,
)
from modyn_dagster.triggering.drift.score import Score
from modyn_dagster.triggering.drift.windows import Windows

#: Our name for a detector, and its class there.
DETECTORS: Final[Mapping[str, str]] = {
    "mmd": "MMDDrift",
    "lsdd": "LSDDDrift",
    "ks": "KSDrift",
    "cvm": "CVMDrift",
    "fet": "FETDrift",
    "chi_square": "ChiSquareDrift",
    "classifier": "ClassifierDrift",
    "learned_kernel": "LearnedKernelDrift",
}
#: Those that test every column on its own.
_PER_COLUMN: Final = {"ks", "cvm", "fet", "chi_square"}
#: Those that compute with torch, on the device of the features.
_TORCH: Final = {"mmd", "lsdd", "learned_kernel"}
#: Those that train a model, which has float32 parameters.
_TRAINED: Final = {"classifier", "learned_kernel"}
#: Settings that are objects: by import path of a function that makes one.
_MADE: Final = ("model", "kernel", "preprocess_fn", "optimizer")


def alibi(spec: BackendMetric, windows: Windows) -> Score:
    """The detector's distance and p-value; per-column ones are reduced as the spec says.

    ``config`` goes to the detector's constructor. ``model``, ``kernel``, ``preprocess_fn`` and ``optimizer`` are given by import
    path of a function without arguments; by default the classifier is scikit-learn's logistic regression, and the learned kernel
    an RBF kernel on a small network's output. Its p-values are shares of permutations, and may be 0.

    Raises ``MissingExtra``, and ``ConfigError`` for a metric or a setting that alibi-detect does not know.
    """
    if spec.metric not in DETECTORS:
        raise unknown_metric(spec, list(DETECTORS))
    library = load("alibi_detect.cd", spec, package="alibi-detect", extra="drift-alibi")
    with isolated_randomness(windows):
        settings, dtype = _settings(spec, windows), np.float32 if spec.metric in _TRAINED else windows.reference.dtype
        try:
            detector = getattr(library, DETECTORS[spec.metric])(windows.reference.astype(dtype), **settings)
            # Per column the answer is an array; the library's own correction is left out.
            asked = {"drift_type": "feature"} if spec.metric in _PER_COLUMN else {}
            found = detector.predict(windows.current.astype(dtype), **asked)
        except TypeError as error:
            raise refused_config(spec, error) from error
        except (ValueError, ArithmeticError) as error:
            return Score.undefined(f"alibi-detect: {error}")
    return reduced(spec, distances=found["data"]["distance"], p_values=found["data"]["p_val"], windows=windows)


def _settings(spec: BackendMetric, windows: Windows) -> dict[str, Any]:
    settings = {name: _made(value) if name in _MADE else value for name, value in spec.config.items()}
    if "sigma" in settings:
        settings["sigma"] = np.atleast_1d(np.asarray(settings["sigma"], dtype=windows.reference.dtype))
    if spec.metric in _TORCH:
        settings = {"backend": "pytorch", "device": windows.device} | settings
    if spec.metric == "classifier":
        settings = {"backend": "sklearn"} | settings
        settings.setdefault("model", _logistic_regression())
    if spec.metric == "learned_kernel":
        settings.setdefault("kernel", _deep_kernel(windows.width))
    return settings


def _made(path: Any) -> Any:
    return import_callable(str(path), source=SOURCE, field="metrics.config")()


def _logistic_regression() -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=1_000)


def _deep_kernel(width: int) -> Any:
    from alibi_detect.utils.pytorch import DeepKernel
    from torch import nn

    return DeepKernel(nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, 8)), eps=0.01)
