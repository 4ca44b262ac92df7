"""The file from which a training that was killed goes on."""

import hashlib
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from modyn_dagster.errors import TrainingError
from modyn_dagster.state_tree import flatten, restore
from modyn_dagster.storage import atomic_file, sweep_unfinished
from modyn_dagster.training.checkpoint.parts import SUFFIXES

logger = logging.getLogger(__name__)

_VERSION: Final = "1"


class CheckpointFile:
    """The newest checkpoint of one training: a safetensors file that is replaced as a whole, and holds no pickle.

    Args:
        path: of the file; its folder is made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def save(self, fingerprint: str, state: Any) -> None:
        """Replace what was there. ``WriteFailed`` when the operating system refuses, ``TrainingError`` for unknown state."""
        try:
            content, tensors = flatten(state, what="state")
        except TypeError as error:
            raise TrainingError(f"the training cannot be checkpointed: {error}; set `checkpoint: null`") from error
        digest = _digest(content, tensors)
        header = {"version": _VERSION, "fingerprint": fingerprint, "digest": digest, "state": json.dumps(content)}
        with atomic_file(self.path) as file:
            file.write(save(tensors, metadata=header))

    def load(self, fingerprint: str) -> Any | None:
        """The state, if there is one of the same training; None, with a line in the log, for a file that is not whole."""
        if not self.path.is_file():
            return None
        try:
            with safe_open(self.path, framework="pt") as file:
                header = file.metadata() or {}
                if (header.get("version"), header.get("fingerprint")) != (_VERSION, fingerprint):
                    logger.info("%s is of another training; this one begins at its beginning", self.path)
                    return None
                tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - the file is no mapping
                content = json.loads(header["state"])
        except (SafetensorError, OSError, KeyError, ValueError) as error:
            logger.warning("%s cannot be read (%s); the training begins at its beginning", self.path, error)
            return None
        if _digest(content, tensors) != header.get("digest"):
            logger.warning("%s was damaged; the training begins at its beginning", self.path)
            return None
        return restore(content, tensors)

    def beside(self, suffix: str) -> "CheckpointFile":
        """A file that goes with it."""
        return CheckpointFile(self.path.with_name(self.path.name + suffix))

    def remove(self) -> None:
        """Remove it, what goes with it, and what killed writers left beside it."""
        for path in (self.path, *(self.beside(suffix).path for suffix in SUFFIXES)):
            sweep_unfinished(path)
            path.unlink(missing_ok=True)


def _digest(content: Any, tensors: dict[str, Tensor]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in _bytes(content, tensors):
        digest.update(part)
    return digest.hexdigest()


def _bytes(content: Any, tensors: dict[str, Tensor]) -> Iterator[bytes]:
    yield json.dumps(content).encode()
    for name, tensor in sorted(tensors.items()):
        yield f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode()
        yield tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
