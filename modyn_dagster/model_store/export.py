"""Export of a model: safetensors for any tool, TorchScript or ``torch.export`` for a serving system."""

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import save
from torch import Tensor, nn

from modyn_dagster.errors import ConfigError, ModynError
from modyn_dagster.model_store.format.tensors import VIEWED_NAMES, load_into, name_of
from modyn_dagster.model_store.provenance.recipe import allowed_callable
from modyn_dagster.storage import atomic_file

#: Description of the inputs within ``.pt`` and ``.pt2`` files, as JSON; a property of ``.onnx`` files.
DESCRIPTION: Final = "modyn.json"
_SUFFIXES: Final = (".safetensors", ".pt", ".pt2")


def export(
    state: Mapping[str, Tensor],
    path: Path,
    architecture: Mapping[str, Any] | None,
    allow: Sequence[str],
    inputs: tuple[Any, ...] | None,
) -> None:
    """Write ``.safetensors``, ``.pt`` (TorchScript) or ``.pt2`` (``torch.export``, which needs example ``inputs``)."""
    match path.suffix:
        case ".safetensors":
            with atomic_file(path) as file:
                file.write(safetensors_of(state))
        case ".pt" | ".pt2":
            if inputs is None:
                rule = f"example inputs are needed to trace the model for {path.suffix}: give inputs=(…) (--inputs FILE)"
                raise ConfigError("export", "inputs", None, rule)
            _write_program(_module(state, architecture, allow), inputs, path)
        case _:
            raise ConfigError("export", "path", str(path), f"must end in one of {', '.join(_SUFFIXES)}")


def safetensors_of(state: Mapping[str, Tensor]) -> bytes:
    """Bytes of a safetensors file; ``ConfigError`` for a dtype that such files do not have."""
    if name := next((name for name, tensor in state.items() if tensor.dtype in VIEWED_NAMES), None):
        raise ConfigError("export", name, name_of(state[name].dtype), "a dtype that safetensors files do not have")
    # The library refuses names that share memory.
    return save({name: tensor.clone() for name, tensor in state.items()}, {"format": "pt"})


def _module(state: Mapping[str, Tensor], architecture: Mapping[str, Any] | None, allow: Sequence[str]) -> nn.Module:
    if architecture is None:
        rule = "the model was saved without its architecture; save it with model=…, or export .safetensors"
        raise ConfigError("export", "model", None, rule)
    factory = architecture["factory"]
    build = allowed_callable(factory, allow, source="export", field="model", purpose="built")
    try:
        module = build(**architecture["args"])
    except ModynError:
        raise
    except Exception as error:
        rule = f"fails to build the module: {_first_line(error)}"
        raise ConfigError("export", "model", f"{factory}(**{architecture['args']})", rule) from error
    if not isinstance(module, nn.Module):
        raise ConfigError("export", "model", factory, f"must return a torch.nn.Module, not a {type(module).__name__}")
    load_into(module, state)
    return module.eval()


def _write_program(module: nn.Module, inputs: tuple[Any, ...], path: Path) -> None:
    try:
        with torch.no_grad():
            module(*inputs)
    except Exception as error:
        rule = f"the model cannot be called with these: {_first_line(error)}"
        if isinstance(inputs[0] if len(inputs) == 1 else None, Mapping):
            rule += "; it was called with one mapping (--positional: with arguments)"
        raise ConfigError("export", "inputs", _shapes(inputs), rule) from error
    try:
        program = _traced(module, inputs, path.suffix)
    except Exception as error:
        raise ConfigError("export", "model", path.suffix, f"torch cannot trace it: {_first_line(error)}") from error
    with atomic_file(path) as file:
        program(file)


@contextmanager
def torchscript_without_warnings() -> Iterator[None]:
    """Silence what torch says of TorchScript, which it has deprecated: serving systems still load it."""
    with warnings.catch_warnings():
        for category in (DeprecationWarning, FutureWarning):
            warnings.filterwarnings("ignore", ".*torch.jit", category)
        yield


def _traced(module: nn.Module, inputs: tuple[Any, ...], suffix: str) -> Callable[[Any], None]:
    """Function that writes the traced program to a file."""
    # The form of the call: a mapping or arguments, with their shapes and dtypes.
    described = {DESCRIPTION: json.dumps({"inputs": _described(inputs)})}
    if suffix == ".pt2":
        exported = torch.export.export(module, inputs)
        return lambda file: torch.export.save(exported, file, extra_files=described)
    with torchscript_without_warnings():
        traced = torch.jit.trace(module, inputs)  # type: ignore[no-untyped-call]

    def save_traced(file: Any) -> None:
        with torchscript_without_warnings():
            torch.jit.save(traced, file, _extra_files=described)

    return save_traced


def _described(inputs: object) -> Any:
    match inputs:
        case Tensor():
            return {"shape": list(inputs.shape), "dtype": name_of(inputs.dtype)}
        case Mapping():
            return {name: _described(part) for name, part in inputs.items()}
        case tuple() | list():
            return [_described(part) for part in inputs]
    return type(inputs).__name__


def _shapes(inputs: object) -> Any:
    match inputs:
        case Tensor():
            return list(inputs.shape)
        case Mapping():
            return {name: _shapes(part) for name, part in inputs.items()}
        case tuple() | list():
            return [_shapes(part) for part in inputs]
    return type(inputs).__name__


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
