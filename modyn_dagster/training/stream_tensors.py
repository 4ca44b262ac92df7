"""The arrays and tensors of a stream's batch, and page-locked memory for them."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fastpath import Batch
from modyn_dagster.training.device_copy import as_tensor, mapped, tensor_of


def allocate_pinned(n_bytes: int) -> npt.NDArray[np.uint8]:
    """Page-locked memory, for a stream's ``allocate``."""
    memory: npt.NDArray[np.uint8] = torch.empty(n_bytes, dtype=torch.uint8, pin_memory=True).numpy()
    return memory


def as_arrays(batch: Any) -> Any:
    """A stream's batch as a dict; anything else was made by a transform and stays."""
    if not isinstance(batch, Batch):
        return batch
    found: dict[str, Any] = {"number": batch.number, "keys": batch.keys, "weights": batch.weights}
    if batch.rows is not None:
        found["rows"] = batch.rows.rows
    if batch.blobs is not None:
        found |= {"buffer": batch.blobs.buffer, "offsets": batch.blobs.offsets}
    found |= {name: part for name in ("labels", "timestamps") if (part := getattr(batch, name)) is not None}
    if batch.columns is not None:
        if not found.keys().isdisjoint(batch.columns):
            taken = ", ".join(sorted(found.keys() & batch.columns.keys()))
            raise ValueError(f"a batch has {taken} of its own; give the columns of this name another one")
        found |= batch.columns
    return found


def as_tensors(batch: Any) -> Any:
    """A batch as ``StreamLoader`` gives it, in the stream's own memory."""
    if not isinstance(batch, Batch):
        return mapped(batch, as_tensor)
    # The shape of these is known; there is no need to look for arrays inside.
    arrays = as_arrays(batch)
    number = arrays.pop("number")
    return {"number": number} | {name: tensor_of(array) for name, array in arrays.items()}
