"""Stream detectors of the user's own: one value in, sounds or not, with JSON state, by import path."""

import json
from collections.abc import Mapping
from typing import Any, Final, Protocol, cast, runtime_checkable

import numpy as np

from modyn_dagster.errors import ConfigError, ModynError
from modyn_dagster.imports import made_by_factory
from modyn_dagster.spec.triggers.detector import CustomDetectorSpec
from modyn_dagster.triggering.policy import State
from modyn_dagster.values.json_values import require_json

SOURCE: Final = "detector trigger"
#: Longest JSON text of a state, which is stored with every measurement.
MOST_STATE: Final = 1 << 20


@runtime_checkable
class StreamDetector(Protocol):
    """Detector that reads one value after another. What it does next depends on its state and on the next value alone."""

    def update(self, value: float) -> bool:
        """Read a value, and tell whether the detector sounds at it.

        Args:
            value: 0/1 error of a model of classes, absolute error of a regression, or ``1 - confidence``, as ``stream`` says.
        """

    def state_dict(self) -> State:
        """State that a fresh detector goes on from, as JSON values."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up a state of ``state_dict``."""


def custom_detector(spec: CustomDetectorSpec, *, source: str = SOURCE, field: str = "detector") -> StreamDetector:
    """Detector that ``factory(**config)`` returns.

    Args:
        spec: of the detector.
        source: file or pipeline of the block, for errors.
        field: of the detector there.

    Raises:
        ImportPathError: the path cannot be imported, or its result lacks a method of ``StreamDetector``.
        ConfigError: the factory refused its config.
    """
    what = "a detector with the methods update, state_dict and load_state_dict"
    made = made_by_factory(spec.factory, spec.config, StreamDetector, what=what, source=source, field=field)
    return cast(StreamDetector, made)


class OwnDetector:
    """Detector of the user's with every call checked; errors name its factory and the value.

    Args:
        spec: of the detector.

    Raises:
        ImportPathError, ConfigError: as for ``custom_detector``.
    """

    def __init__(self, spec: CustomDetectorSpec) -> None:
        self._spec = spec
        self._detector = custom_detector(spec)

    def update(self, value: float) -> bool:
        """Read a finite value. Raises ``ConfigError`` where the detector fails, or returns anything but True or False."""
        return updated(self._detector, value, self._spec.factory)

    def saved(self) -> State:
        """State, copied. Raises ``ConfigError`` where the detector fails, or its state is not JSON or longer than 1 MiB."""
        return saved_state(self._detector, self._spec.factory)

    def restored(self, state: Mapping[str, Any]) -> "OwnDetector":
        """A fresh detector with a state of ``saved``. Raises ``ConfigError`` where it refuses the state."""
        fresh = OwnDetector(self._spec)
        try:
            fresh._detector.load_state_dict(state)
        except Exception as error:
            raise _failed(self._spec.factory, f"took up no state of its own, {_shown(state)}", error) from error
        return fresh


def updated(detector: StreamDetector, value: float, name: str) -> bool:
    """Let a detector of the user's read a value. Raises ``ConfigError``, which names it."""
    try:
        sounds: object = detector.update(value)
    except Exception as error:
        raise _failed(name, f"failed on the value {value!r}", error) from error
    if not isinstance(sounds, bool | np.bool_):
        raise ConfigError(SOURCE, "detector.factory", name, f"its update must return True or False, not {sounds!r}")
    return bool(sounds)


def saved_state(detector: StreamDetector, name: str) -> State:
    """State of a detector of the user's, copied through JSON. Raises ``ConfigError``, which names it."""
    try:
        state = detector.state_dict()
    except Exception as error:
        raise _failed(name, "failed to tell its state", error) from error
    require_json(f"{SOURCE}: detector.factory: {name}", "state_dict", state)
    text = json.dumps(state)
    if len(text) > MOST_STATE or not isinstance(state, dict):
        found = f"{len(text):,} characters" if isinstance(state, dict) else f"a {type(state).__name__}"
        rule = f"its state must be a JSON object of at most {MOST_STATE:,} characters, not {found}"
        raise ConfigError(SOURCE, "detector.factory", name, rule)
    copied: State = json.loads(text)
    return copied


def _failed(name: str, what: str, error: Exception) -> Exception:
    if isinstance(error, ModynError):
        return error
    return ConfigError(SOURCE, "detector.factory", name, f"{what}: {type(error).__name__}: {error}")


def _shown(state: Mapping[str, Any]) -> str:
    text = json.dumps(state)
    return text if len(text) <= 200 else f"{text[:200]}…"
