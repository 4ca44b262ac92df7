"""Activations of a model: outputs of named modules, and the input of its last linear layer."""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from modyn_dagster.errors import ConfigError, WrongShape
from modyn_dagster.training.data import COLUMNS, EMBEDDING, OUTPUTS

__all__ = ["COLUMNS", "EMBEDDING", "OUTPUTS", "flattened", "listening", "on_cpu"]

_FIELD: Final = "trigger.features.layer"


@contextmanager
def listening(body: nn.Module, taps: Collection[str], *, source: str) -> Iterator[Callable[[str, int], npt.NDArray[np.float32]]]:
    """Within the block, what passes the taps of a model's body is kept; of a module called several times the last call.

    Yields a function ``(tap, n_samples) -> float32[n_samples, values]``. ``ConfigError`` for a module that is not there.
    """
    heard: dict[str, Tensor] = {}
    modules = dict(body.named_modules())
    with ExitStack() as hooks:
        for tap in set(taps) - {OUTPUTS, COLUMNS, EMBEDDING}:
            if tap not in modules or not tap:
                known = ", ".join(name for name in modules if name) or "none, it is one layer"
                raise ConfigError(source, _FIELD, tap, f"the model has no such module; known: {known}")
            hooks.callback(modules[tap].register_forward_hook(partial(_keep_output, heard, tap)).remove)
        if EMBEDDING in taps:
            for module in modules.values():
                if isinstance(module, nn.Linear):
                    hooks.callback(module.register_forward_pre_hook(partial(_keep_input, heard)).remove)
        yield partial(_heard, heard, source)


def flattened(inputs: Iterable[Tensor]) -> npt.NDArray[np.float32]:
    """All inputs of a model side by side, ``float32[n, values]``."""
    return np.concatenate([on_cpu(tensor.flatten(1) if tensor.ndim > 1 else tensor[:, None]) for tensor in inputs], axis=1)


def on_cpu(tensor: Tensor) -> npt.NDArray[np.float32]:
    """As an array of its own."""
    array: npt.NDArray[np.float32] = tensor.detach().to("cpu", torch.float32).numpy()
    return array


def _keep_output(heard: dict[str, Tensor], tap: str, _module: nn.Module, _inputs: Any, output: Any) -> None:
    # Recurrent layers and attention return what they make first and their state after it.
    heard[tap] = _copied(output[0] if isinstance(output, tuple | list) else output)


def _keep_input(heard: dict[str, Tensor], _module: nn.Module, inputs: Any) -> None:
    heard[EMBEDDING] = _copied(inputs[0])


def _copied(found: Any) -> Any:
    # What follows may work in place.
    return found.clone() if isinstance(found, Tensor) else found


def _heard(heard: dict[str, Tensor], source: str, tap: str, n_samples: int) -> npt.NDArray[np.float32]:
    if tap not in heard:
        rule = "no linear layer took part, name a module" if tap == EMBEDDING else "the module takes no part in the forward pass"
        raise ConfigError(source, _FIELD, None if tap == EMBEDDING else tap, rule)
    found = heard[tap]
    if not isinstance(found, Tensor) or found.ndim == 0 or len(found) != n_samples:
        shape = found.shape if isinstance(found, Tensor) else ()
        raise WrongShape([n_samples, "values"], shape, what=f"{source}: module {tap!r}")
    return on_cpu(found.reshape(n_samples, -1))
