"""The laws of strategies, one after the other, over generated windows."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from modyn_dagster.errors import ChoiceRefused, ConfigError, LawBroken, SelectionError
from modyn_dagster.reproducibility.global_randomness import global_states, with_global_seed
from modyn_dagster.reproducibility.randomness import rng_for
from modyn_dagster.selection.conformance.windows import GeneratedWindow, generated_windows, other_batches
from modyn_dagster.selection.own.choice import Origin
from modyn_dagster.selection.own.custom import choose
from modyn_dagster.selection.own.protocol import Chosen, SelectionStrategy, WindowSamples

AGREE: Final = "equal seeds agree"
NO_GLOBALS: Final = "no global random state is used"
UNCHANGED: Final = "the arrays of a window are not changed"
BATCHES: Final = "other batches change no choice"
_ORIGIN: Final = Origin("check_strategy", "strategy", "the strategy")

#: Chosen sample numbers, weights and chances.
_Facts = tuple[list[int], list[float] | None, list[float] | None]


def check_strategy(
    factory: Callable[..., SelectionStrategy],
    config: Mapping[str, Any] | None = None,
    *,
    samples: int = 300,
    seed: int = 0,
    attributes: Mapping[str, Sequence[str | None]] | None = None,
) -> None:
    """Check that a strategy obeys the laws of selection strategies.

    1. It chooses samples of the window, each at most once, and at most as many as asked for.
    2. Weights are finite and positive, chances above 0 and at most 1.
    3. Equal seeds agree: called again, and made again, it chooses the same.
    4. No global random state is used: neither that of ``random`` and NumPy nor, where it is loaded, that of torch.
    5. The arrays of a window are not changed.
    6. Other batches change no choice: keys are names, and random numbers come from ``WindowSamples.random``.

    Windows have one class, many or none, one sample or some, and ask for all samples or one.

    Args:
        factory: of the pipeline's block.
        config: its keyword arguments.
        samples: of most windows.
        seed: another one, other windows.
        attributes: values that samples have, by the names in the block.

    Raises:
        LawBroken: names the law and the window.
        SelectionError: the strategy raises an error on a window.
        ConfigError: the strategy chooses nothing on all windows, so little was checked.
    """
    made = [factory(**(config or {})) for _ in range(2)]
    n_chosen = 0
    for window in generated_windows(samples, attributes or {}, seed):
        expected = _watched(made[0], window)
        n_chosen += len(expected[0])
        for number, strategy in enumerate((made[0], made[1], made[1])):
            _compare(AGREE, window, expected, with_global_seed(number, partial(_chosen, strategy, window)))
        rng, n = rng_for(seed, "cut", window.name), len(window.labels)
        for lengths in ([n], [1] * n, other_batches(n, rng)):
            _compare(BATCHES, window, expected, _chosen(made[0], window.cut(lengths)))
    if not n_chosen:
        raise ConfigError("check_strategy", "samples", samples, "nothing was chosen from any window: take larger ones")


def _watched(strategy: SelectionStrategy, window: GeneratedWindow) -> _Facts:
    """Choose once, and hold global random states and the window against what they were before."""
    before, samples = global_states(), window.samples()
    facts = _chosen(strategy, window, samples)
    after = global_states()
    for library, state in before.items():
        if after[library] != state:
            raise LawBroken(NO_GLOBALS, window.name, None, f"that of {library} was; draw from samples.random")
    if _content(samples) != _content(window.samples()):
        raise LawBroken(UNCHANGED, window.name, None, "an array has other values after the call")
    return facts


def _chosen(strategy: SelectionStrategy, window: GeneratedWindow, samples: WindowSamples | None = None) -> _Facts:
    samples = samples or window.samples()
    try:
        chosen: Chosen = choose(strategy, samples, _ORIGIN)
    except ChoiceRefused as error:
        raise LawBroken(error.law, window.name, None, error.what) from error
    except SelectionError as error:
        if "read-only" in str(error):
            raise LawBroken(UNCHANGED, window.name, None, str(error.__cause__)) from error
        raise
    numbers = np.searchsorted(window.keys, chosen.keys).tolist()
    weights, chances = (None if column is None else column.tolist() for column in (chosen.weights, chosen.chances))
    return numbers, weights, chances


def _compare(law: str, window: GeneratedWindow, expected: _Facts, found: _Facts) -> None:
    for name, before, now in zip(("samples", "weights", "chances"), expected, found):
        if before != now:
            raise LawBroken(law, window.name, None, f"the {name} {_shown(before)}, then {_shown(now)}")


def _shown(values: Sequence[float] | None) -> str:
    return "none" if values is None else f"{values[:8]}{'...' if len(values) > 8 else ''}"


def _content(samples: WindowSamples) -> list[Any]:
    columns = (samples.keys, samples.labels, samples.stretches, samples.uses, *samples.attributes.values())
    return [None if column is None else column.tolist() for column in columns]
