"""A model for others: safetensors for any tool, TorchScript or ``torch.export`` for a serving system."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import save
from torch import Tensor, nn

from modyn_dagster.errors import ConfigError, ModynError
from modyn_dagster.model_store.allowing import allowed_callable
from modyn_dagster.model_store.dtypes import VIEWED_NAMES, name_of
from modyn_dagster.model_store.names import load_into
from modyn_dagster.storage import atomic_file

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
                file.write(_as_safetensors(state))
        case ".pt" | ".pt2":
            module = _module(state, architecture, allow)
            if inputs is None:
                raise ConfigError("export", "inputs", None, f"example inputs are needed to trace the model for {path.suffix}")
            _write_program(module, inputs, path)
        case _:
            raise ConfigError("export", "path", str(path), f"must end in one of {', '.join(_SUFFIXES)}")


def _as_safetensors(state: Mapping[str, Tensor]) -> bytes:
    if odd := [name for name, tensor in state.items() if tensor.dtype in VIEWED_NAMES]:
        name = odd[0]
        raise ConfigError("export", name, name_of(state[name].dtype), "a dtype that safetensors files do not have")
    # The library refuses names that share memory.
    return save({name: tensor.clone() for name, tensor in state.items()}, {"format": "pt"})


def _module(state: Mapping[str, Tensor], architecture: Mapping[str, Any] | None, allow: Sequence[str]) -> nn.Module:
    if architecture is None:
        raise ConfigError("export", "model", None, "the model was saved without its architecture; save it with model=…")
    build = allowed_callable(architecture["factory"], allow, source="export", field="model")
    try:
        module = build(**architecture["args"])
    except ModynError:
        raise
    except Exception as error:
        raise ConfigError("export", "model", architecture, f"cannot be built: {type(error).__name__}: {error}") from error
    if not isinstance(module, nn.Module):
        raise ConfigError("export", "model", architecture["factory"], f"gives a {type(module).__name__}, no torch.nn.Module")
    load_into(module, state)
    return module.eval()


def _write_program(module: nn.Module, inputs: tuple[Any, ...], path: Path) -> None:
    save = torch.export.save if path.suffix == ".pt2" else torch.jit.save
    with warnings.catch_warnings():
        # Serving systems still load TorchScript, which torch no longer develops.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            program: Any = torch.export.export(module, inputs) if path.suffix == ".pt2" else torch.jit.trace(module, inputs)  # type: ignore[no-untyped-call]
        except Exception as error:
            kinds = [f"{each.dtype} {list(each.shape)}" if isinstance(each, Tensor) else type(each).__name__ for each in inputs]
            rule = f"the model cannot be traced with them: {type(error).__name__}: {error}"
            raise ConfigError("export", "inputs", kinds, rule) from error
        with atomic_file(path) as file:
            save(program, file)
