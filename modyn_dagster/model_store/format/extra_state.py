"""Extra state of a model, such as that of an optimizer, a schedule or a generator, stored as tensors without pickle.

The tensors of the state (``state_tree``) are stored like those of the model, under names no module can have; the nesting is one
more tensor: the bytes of a JSON text.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor

from modyn_dagster.errors import StorageError
from modyn_dagster.model_store.format.tensors import require_storable
from modyn_dagster.values.state_tree import decode, encode

#: Prefix of the names of extra tensors: no module can have such a name.
PREFIX: Final = "\0extra"


def with_extra_state(state: Mapping[str, Tensor], extra: object) -> dict[str, Tensor]:
    """The state, and all of ``extra`` as further tensors; ``StorageError`` names the part that cannot be stored."""
    if taken := [name for name in state if isinstance(name, str) and name.startswith(PREFIX)]:
        raise StorageError(f"{taken[0]!r} cannot be the name of a tensor: it would be taken for extra state")
    return {**state, **_to_tensors(extra)}


def _to_tensors(extra: object) -> dict[str, Tensor]:
    if extra is None:
        return {}
    tensors: dict[str, Tensor] = {}

    def keep(tensor: Tensor, place: str) -> str:
        name = f"{PREFIX}.{len(tensors)}"
        tensors[name] = require_storable(place, tensor)
        return name

    try:
        text = json.dumps(encode(extra, "extra", keep), separators=(",", ":"))
    except RecursionError:
        raise StorageError("extra is nested too deeply to be stored, or holds itself") from None
    except TypeError as error:
        raise StorageError(str(error)) from error
    except ValueError as error:
        # Numbers of thousands of digits.
        raise StorageError(f"extra cannot be written: {error}") from error
    return {PREFIX: torch.tensor(bytearray(text.encode()), dtype=torch.uint8), **tensors}


def split_extra_state(state: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], Any]:
    """Inverse of ``with_extra_state``; ``StorageError`` for tensors that it never wrote."""
    model = {name: tensor for name, tensor in state.items() if not name.startswith(PREFIX)}
    if PREFIX not in state:
        return model, None
    try:
        return model, decode(json.loads(bytes(state[PREFIX].numpy()).decode()), state.__getitem__)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise StorageError(f"the extra state of a model cannot be read: {type(error).__name__}: {error}") from error
