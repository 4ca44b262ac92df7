"""Checkpoint file, from which a killed training resumes."""

import json
import logging
from pathlib import Path
from typing import Any, Final

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from modyn_dagster.errors import CorruptFile, TrainingError
from modyn_dagster.files.mounting import files_at
from modyn_dagster.storage import atomic_file, sweep_unfinished
from modyn_dagster.training.checkpoint.parts import SUFFIXES
from modyn_dagster.training.states import flatten, restore, state_digest

logger = logging.getLogger(__name__)

#: Version of the encoding and of what a state holds. A training with a file of another version begins anew.
VERSION: Final = "3"


class CheckpointFile:
    """The newest checkpoint of one training: a safetensors file that is replaced as a whole, and holds no pickle.

    Args:
        path: path of the file; its folder is created.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def save(self, fingerprint: str, state: Any) -> None:
        """Replace the checkpoint. ``WriteFailed`` when the operating system refuses, ``TrainingError`` for unknown state."""
        try:
            content, tensors = flatten(state)
        except TypeError as error:
            raise TrainingError(f"the training cannot be checkpointed: {error}; set `checkpoint: null`") from error
        digest = state_digest(content, tensors)
        header = {"version": VERSION, "fingerprint": fingerprint, "digest": digest, "state": json.dumps(content)}
        with atomic_file(self.path) as file:
            file.write(save(tensors, metadata=header))

    def load(self, fingerprint: str) -> Any | None:
        """State of the same training, if the file holds one; None, with a line in the log, for a damaged file."""
        if not files_at(self.path).renewed(self.path):
            return None
        try:
            with files_at(self.path).using(self.path) as place, safe_open(place, framework="pt") as file:
                header = file.metadata() or {}
                if (header.get("version"), header.get("fingerprint")) != (VERSION, fingerprint):
                    logger.info(
                        "%s belongs to another training or version of this package; this one begins at its beginning", self.path
                    )
                    return None
                tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - the file is no mapping
                content = json.loads(header["state"])
            if state_digest(content, tensors) != header.get("digest"):
                logger.warning("%s was damaged; the training begins at its beginning", self.path)
                return None
            return restore(content, tensors)
        except (SafetensorError, OSError, CorruptFile, LookupError, ValueError, TypeError, RecursionError) as error:
            # Digest and fingerprint may be right in a file that no training wrote.
            logger.warning("%s cannot be read (%s); the training begins at its beginning", self.path, error)
            return None

    def beside(self, suffix: str) -> "CheckpointFile":
        """Checkpoint file beside this one, with a suffix."""
        return CheckpointFile(self.path.with_name(self.path.name + suffix))

    def remove(self) -> None:
        """Remove the file, those beside it, and leftovers of killed writers."""
        paths = [self.path, *(self.beside(suffix).path for suffix in SUFFIXES)]
        sweep_unfinished(paths)
        for path in files_at(self.path).sizes(paths):
            files_at(path).remove(path)
