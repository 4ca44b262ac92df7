"""Drift metrics of other libraries: isolated randomness, suppressed warnings, reduction over columns."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType

import numpy as np
import numpy.typing as npt

from modyn_dagster.errors import ConfigError, MissingExtra
from modyn_dagster.reproducibility.randomness import seed_for
from modyn_dagster.spec.triggers.drift import BackendMetric
from modyn_dagster.triggering.drift.score import Score, smallest_corrected
from modyn_dagster.triggering.drift.windows import Windows

SOURCE = "drift trigger"


def load(module: str, spec: BackendMetric, *, package: str, extra: str) -> ModuleType:
    """Import a module of the library; ``MissingExtra`` names the extra that installs it."""
    with _without_warnings():
        try:
            return import_module(module)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
                raise
            raise MissingExtra(SOURCE, "metrics.backend", spec.backend, package=package, extra=extra) from error


def unknown_metric(spec: BackendMetric, names: list[str]) -> ConfigError:
    """Error for a metric that the library does not have."""
    return ConfigError(SOURCE, "metrics.metric", spec.metric, f"backend {spec.backend} has {', '.join(sorted(names))}")


def refused_config(spec: BackendMetric, error: TypeError) -> ConfigError:
    """Error for settings that the library does not accept."""
    return ConfigError(SOURCE, "metrics.config", spec.config, f"{spec.backend} {spec.metric} refuses it: {error}")


@contextmanager
def isolated_randomness(windows: Windows) -> Iterator[None]:
    """Seed the global generators of NumPy and torch from the windows' place, and restore them; suppress all warnings."""
    import torch

    seed = seed_for(windows.seed, *windows.place, "backend")
    numpy_state = np.random.get_state()
    on = torch.device(windows.device)
    devices = [torch.cuda.current_device() if on.index is None else on.index] if on.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), _without_warnings():
        torch.manual_seed(seed)
        np.random.seed(seed)
        try:
            yield
        finally:
            np.random.set_state(numpy_state)


def reduced_score(
    spec: BackendMetric, *, distances: npt.ArrayLike | None, p_values: npt.ArrayLike | None, windows: Windows
) -> Score:
    """Score of a library's values, one for each column or one for all.

    Without distances the score is the smallest p-value after correction.
    """
    p = None if p_values is None else smallest_corrected(np.atleast_1d(np.asarray(p_values, dtype=np.float64)), spec.correction)
    if distances is None or spec.reduce == "p_value":
        return Score(p, p) if p is not None else Score.undefined(f"{spec.backend} {spec.metric} gives no p-value")
    values = np.atleast_1d(np.asarray(distances, dtype=np.float64))
    details = {"mean": float(values.mean()), "max": float(values.max()), "column": int(values.argmax())}
    value = details[spec.reduce]
    return Score(value, p, details if windows.width == len(values) > 1 else {})


@contextmanager
def _without_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
