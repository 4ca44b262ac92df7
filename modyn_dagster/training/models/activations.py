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

_FIELD: Final = "layer"


@contextmanager
def record_activations(
    body: nn.Module, layers: Collection[str], *, source: str
) -> Iterator[Callable[[str, int], npt.NDArray[np.float32]]]:
    """Record the activations of named layers within the block; the last call of a module counts.

    Yields a function ``(layer, n_samples) -> float32[n_samples, values]``. ``ConfigError`` for an unknown module.
    """
    recorded: dict[str, Tensor] = {}
    modules = dict(body.named_modules())
    with ExitStack() as hooks:
        for layer in set(layers) - {OUTPUTS, COLUMNS, EMBEDDING}:
            if layer not in modules or not layer:
                known = ", ".join(name for name in modules if name) or "none, it is one layer"
                raise ConfigError(source, _FIELD, layer, f"the model has no such module; known: {known}")
            hooks.callback(modules[layer].register_forward_hook(partial(_keep_output, recorded, layer)).remove)
        if EMBEDDING in layers:
            for module in modules.values():
                if isinstance(module, nn.Linear):
                    hooks.callback(module.register_forward_pre_hook(partial(_keep_input, recorded)).remove)
        yield partial(_recorded, recorded, source)


def flattened(inputs: Iterable[Tensor]) -> npt.NDArray[np.float32]:
    """Concatenate all inputs of a model, ``float32[n, values]``."""
    return np.concatenate([to_numpy(tensor.flatten(1) if tensor.ndim > 1 else tensor[:, None]) for tensor in inputs], axis=1)


def to_numpy(tensor: Tensor) -> npt.NDArray[np.float32]:
    """Convert to a float32 array on the CPU."""
    array: npt.NDArray[np.float32] = tensor.detach().to("cpu", torch.float32).numpy()
    return array


def _keep_output(recorded: dict[str, Tensor], layer: str, _module: nn.Module, _inputs: Any, output: Any) -> None:
    # Recurrent layers and attention return their outputs first, then their state.
    recorded[layer] = _copied(output[0] if isinstance(output, tuple | list) else output)


def _keep_input(recorded: dict[str, Tensor], _module: nn.Module, inputs: Any) -> None:
    recorded[EMBEDDING] = _copied(inputs[0])


def _copied(output: Any) -> Any:
    # Later layers may work in place.
    return output.clone() if isinstance(output, Tensor) else output


def _recorded(recorded: dict[str, Tensor], source: str, layer: str, n_samples: int) -> npt.NDArray[np.float32]:
    if layer not in recorded:
        rule = (
            "no linear layer took part, name a module" if layer == EMBEDDING else "the module takes no part in the forward pass"
        )
        raise ConfigError(source, _FIELD, None if layer == EMBEDDING else layer, rule)
    output = recorded[layer]
    if not isinstance(output, Tensor) or output.ndim == 0 or len(output) != n_samples:
        shape = output.shape if isinstance(output, Tensor) else ()
        raise WrongShape([n_samples, "values"], shape, what=f"{source}: module {layer!r}")
    return to_numpy(output.reshape(n_samples, -1))
