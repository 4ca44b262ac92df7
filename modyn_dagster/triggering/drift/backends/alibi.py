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
    reduced_score,
    refused_config,
    unknown_metric,
)
from modyn_dagster.triggering.drift.score import Score
from modyn_dagster.triggering.drift.windows import Windows

#: Classes of alibi-detect by name of a metric.
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
#: Detectors that test every column on its own.
_PER_COLUMN: Final = {"ks", "cvm", "fet", "chi_square"}
#: Detectors that compute with torch, on the device of the features.
_TORCH: Final = {"mmd", "lsdd", "learned_kernel"}
#: Detectors that train a model with float32 parameters.
_TRAINED: Final = {"classifier", "learned_kernel"}
#: Settings that are objects, given by import path of a function that makes one.
_OBJECTS: Final = ("model", "kernel", "preprocess_fn", "optimizer")


def alibi(spec: BackendMetric, windows: Windows) -> Score:
    """Distance and p-value of a detector of alibi-detect (Van Looveren et al., github.com/SeldonIO/alibi-detect).

    Distances and p-values of columns are reduced. P-values are shares of permutations and may be 0.

    Args:
        spec: metric, reduction, and ``config`` for the detector's constructor. Its ``model``, ``kernel``, ``preprocess_fn`` and
            ``optimizer`` are import paths of functions without arguments. By default the classifier is scikit-learn's logistic
            regression, and the learned kernel an RBF kernel on the output of a small network.
        windows: reference and current window.

    Raises:
        MissingExtra: alibi-detect is not installed.
        ConfigError: alibi-detect does not know the metric or a setting.

    >>> windows = Windows(np.arange(10.0)[:, None], np.arange(5.0, 15.0)[:, None])
    >>> round(alibi(BackendMetric(backend="alibi", metric="ks"), windows).value, 3)
    0.5
    """
    if spec.metric not in DETECTORS:
        raise unknown_metric(spec, list(DETECTORS))
    library = load("alibi_detect.cd", spec, package="alibi-detect", extra="drift-alibi")
    with isolated_randomness(windows):
        settings, dtype = _settings(spec, windows), np.float32 if spec.metric in _TRAINED else windows.reference.dtype
        try:
            detector = getattr(library, DETECTORS[spec.metric])(windows.reference.astype(dtype), **settings)
            # Metrics of columns answer with arrays; the library's own correction is not used.
            options = {"drift_type": "feature"} if spec.metric in _PER_COLUMN else {}
            answer = detector.predict(windows.current.astype(dtype), **options)
        except TypeError as error:
            raise refused_config(spec, error) from error
        except (ValueError, ArithmeticError) as error:
            return Score.undefined(f"alibi-detect: {error}")
    return reduced_score(spec, distances=answer["data"]["distance"], p_values=answer["data"]["p_val"], windows=windows)


def _settings(spec: BackendMetric, windows: Windows) -> dict[str, Any]:
    settings = {name: _call_factory(value) if name in _OBJECTS else value for name, value in spec.config.items()}
    if "sigma" in settings:
        settings["sigma"] = np.atleast_1d(np.asarray(settings["sigma"], dtype=windows.reference.dtype))
    if spec.metric in _TORCH:
        settings = {"backend": "pytorch", "device": _device(windows.device)} | settings
    if spec.metric == "classifier":
        settings = {"backend": "sklearn"} | settings
        settings.setdefault("model", _logistic_regression())
    if spec.metric == "learned_kernel":
        settings.setdefault("kernel", _deep_kernel(windows.width))
    return settings


def _device(device: str) -> Any:
    """Device as alibi-detect takes it: ``cpu`` and ``cuda`` by name, one of several GPUs as torch's own."""
    if ":" not in device:
        return device
    import torch

    return torch.device(device)


def _call_factory(path: Any) -> Any:
    return import_callable(str(path), source=SOURCE, field="metrics.config")()


def _logistic_regression() -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=1_000)


def _deep_kernel(width: int) -> Any:
    from alibi_detect.utils.pytorch import DeepKernel
    from torch import nn

    return DeepKernel(nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, 8)), eps=0.01)
