"""The baseline approach of MMlib (EDBT 2022, section 3.1): the whole state by ``torch.save``, an MD5 of every tensor."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor


def baseline_save(state: Mapping[str, Tensor], path: Path) -> None:
    """A hash of every tensor, ``torch.save``, and a sync to the disk."""
    hashes = {name: hashlib.md5(_bytes(tensor), usedforsecurity=False).hexdigest() for name, tensor in state.items()}
    with open(path, "wb") as file:
        torch.save({"state": dict(state), "hashes": hashes}, file)
        file.flush()
        os.fsync(file.fileno())


def baseline_load(path: Path) -> dict[str, Tensor]:
    """``torch.load``, and the hash of every tensor compared; ``RuntimeError`` names one that changed."""
    content = torch.load(path, weights_only=True)
    state: dict[str, Tensor] = content["state"]
    for name, tensor in state.items():
        if hashlib.md5(_bytes(tensor), usedforsecurity=False).hexdigest() != content["hashes"][name]:
            raise RuntimeError(f"{path}: {name} changed")
    return state


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data
