"""The laws of stream detectors of the user's own, over generated streams."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from modyn_dagster.errors import ConfigError, LawBroken
from modyn_dagster.reproducibility.global_randomness import global_states, with_global_seed
from modyn_dagster.reproducibility.randomness import rng_for
from modyn_dagster.triggering.detectors.custom import StreamDetector, saved_state, updated

Values = Literal["errors", "absolute_errors", "scores"]
_AGREE: Final = "equal streams agree"
_NO_GLOBALS: Final = "no global random state is used"
_STATE: Final = "saving and loading state changes no detection"
_SAME: Final = "a restored detector has the state it was given"
_ALONE: Final = "detectors share nothing"
_NAME: Final = "the detector"
#: Numbers of values between two saved states.
_EVERY: Final = (1, 3, 50)


def check_detector(
    factory: Callable[..., StreamDetector],
    config: Mapping[str, Any] | None = None,
    *,
    values: Values = "errors",
    samples: int = 600,
    seed: int = 0,
) -> None:
    """Check that a stream detector obeys the laws of detectors.

    1. Equal streams agree: made again, it sounds at the same values, whatever the global random states, which it leaves alone.
    2. Saving and loading state through JSON changes no detection, at any point, so a killed process loses nothing and it does
       not matter into which pieces a stream is cut.
    3. Detectors share nothing: while one reads, another one reads what it would alone.

    It returns True or False besides, and its state is a JSON object.

    Args:
        factory: of the pipeline's block.
        config: its keyword arguments.
        values: that it will read: 0/1 errors of classes, absolute errors of a regression, or scores in [0, 1].
        samples: of each stream; enough for it to sound.
        seed: another one, other streams.

    Raises:
        LawBroken: names the law, the stream and the first value with another answer.
        ConfigError: the detector fails, or sounds on no stream, so nothing was checked.
    """
    make = partial(factory, **(config or {}))
    sounded = False
    for name, stream in _streams(values, samples, seed):
        expected = _watched(make(), name, stream)
        sounded = sounded or any(expected)
        for number in range(2):
            _compare(_AGREE, name, expected, with_global_seed(number, partial(_read, make(), stream)))
        for every in _EVERY:
            _compare(_STATE, name, expected, _saved_every(make, name, stream, every))
        for cut in rng_for(seed, "cuts", name).integers(0, len(stream) + 1, 5).tolist():
            _compare(_STATE, name, expected, _saved_at(make, name, stream, cut))
        _compare(_ALONE, name, expected, _beside_another(make, stream))
    if not sounded:
        raise ConfigError("check_detector", "samples", samples, "the detector sounds on no stream: take longer ones")


def _streams(values: Values, samples: int, seed: int) -> Iterator[tuple[str, list[float]]]:
    """Streams of ``samples`` values by name; empty ones and single values are pieces of them."""
    early = np.arange(samples) < samples // 2
    shares: dict[str, npt.NDArray[np.float64]] = {
        "without drift": np.full(samples, 0.1),
        "with a drift": np.where(early, 0.05, 0.95),
        "that gets better": np.where(early, 0.9, 0.1),
        "that drifts slowly": np.linspace(0.0, 1.0, samples),
        "of zeros, then ones": np.where(early, 0.0, 1.0),
    }
    for name, share in shares.items():
        rng = rng_for(seed, "stream", name)
        if values == "errors":
            stream = (rng.random(samples) < share).astype(np.float64)
        elif values == "scores":
            stream = np.clip(rng.normal(share, 0.05), 0.0, 1.0)
        else:
            stream = np.abs(rng.normal(0.0, 1.0, samples)) * 10 * share
        yield name, stream.tolist()


def _read(detector: StreamDetector, stream: list[float]) -> list[bool]:
    return [updated(detector, value, _NAME) for value in stream]


def _watched(detector: StreamDetector, name: str, stream: list[float]) -> list[bool]:
    before = global_states()
    sounds = _read(detector, stream)
    after = global_states()
    for library, state in before.items():
        if after[library] != state:
            raise LawBroken(_NO_GLOBALS, name, None, f"that of {library} was; keep a generator of your own, and its state")
    return sounds


def _saved_every(make: Callable[[], StreamDetector], name: str, stream: list[float], every: int) -> list[bool]:
    detector, sounds = make(), list[bool]()
    for start in range(0, len(stream), every):
        sounds += _read(detector, stream[start : start + every])
        detector = _reloaded(make, detector, name, len(sounds))
    return sounds


def _saved_at(make: Callable[[], StreamDetector], name: str, stream: list[float], cut: int) -> list[bool]:
    first = make()
    sounds = _read(first, stream[:cut])
    return sounds + _read(_reloaded(make, first, name, cut), stream[cut:])


def _reloaded(make: Callable[[], StreamDetector], detector: StreamDetector, name: str, n_read: int) -> StreamDetector:
    state, fresh = saved_state(detector, _NAME), make()
    try:
        fresh.load_state_dict(state)
    except Exception as error:
        raise LawBroken(_SAME, name, n_read, f"{state} was refused: {type(error).__name__}: {error}") from error
    if (again := saved_state(fresh, _NAME)) != state:
        raise LawBroken(_SAME, name, n_read, f"saved {state}, then it had {again}")
    return fresh


def _beside_another(make: Callable[[], StreamDetector], stream: list[float]) -> list[bool]:
    one, other, sounds = make(), make(), list[bool]()
    for value, later in zip(stream, reversed(stream), strict=True):
        updated(other, later, _NAME)
        sounds.append(updated(one, value, _NAME))
    return sounds


def _compare(law: str, name: str, expected: list[bool], found: list[bool]) -> None:
    for index, (before, now) in enumerate(zip(expected, found, strict=True)):
        if before != now:
            words = ("is silent", "sounds")
            raise LawBroken(law, name, index, f"it {words[before]} at value {index}, and then it {words[now]} there")
