"""State of a training as JSON and tensors, for checkpoints and for other processes."""

import hashlib
import json
import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch
from safetensors.torch import load, save
from torch import Tensor

from modyn_dagster.values.state_tree import decode, encode

#: Length of the JSON header that safetensors begin with.
_LENGTH: Final = struct.Struct("<Q")


def flatten(state: object) -> tuple[Any, dict[str, Tensor]]:
    """JSON value of a state, and its tensors by name: contiguous copies on the CPU."""
    tensors: dict[str, Tensor] = {}

    def keep(tensor: Tensor, _place: str) -> str:
        name = str(len(tensors))
        tensors[name] = tensor.detach().to("cpu", copy=True).contiguous()
        return name

    return encode(state, "state", keep), tensors


def restore(content: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Inverse of ``flatten``. Tensors are copied into torch's own memory, by whose alignment kernels choose their path."""
    return decode(content, lambda name: tensors[name].clone())


def packed(state: object) -> bytes:
    """Bytes of a state, for another process; ``TypeError`` names what cannot be sent without pickle.

    >>> unpacked(packed({"step": 3, "loss": (0.5, None)}))
    {'step': 3, 'loss': (0.5, None)}
    """
    content, tensors = flatten(state)
    return save(tensors, metadata={"state": json.dumps(content)})


def unpacked(content: bytes) -> Any:
    """Inverse of ``packed``."""
    (length,) = _LENGTH.unpack_from(content)
    header = json.loads(content[_LENGTH.size : _LENGTH.size + length])
    return restore(json.loads(header["__metadata__"]["state"]), load(content))


def state_digest(content: Any, tensors: dict[str, Tensor]) -> str:
    """Digest of a flattened state, in hexadecimal digits."""
    digest = hashlib.blake2b(digest_size=16)
    for part in _bytes(content, tensors):
        digest.update(part)
    return digest.hexdigest()


def _bytes(content: Any, tensors: dict[str, Tensor]) -> Iterator[bytes]:
    yield json.dumps(content).encode()
    for name, tensor in sorted(tensors.items()):
        yield f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode()
        yield tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
