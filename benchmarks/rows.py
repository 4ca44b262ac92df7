"""The 160-byte row of the benchmark, and the batch that every contender must make of it, bit for bit."""

import hashlib
import warnings
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Rows = npt.NDArray[np.void]
Batch = Mapping[str, Tensor]

N_NUMERIC: Final = 13
N_CATEGORICAL: Final = 26
#: As Modyn keeps Criteo: the label first, then 13 numbers, then 26 categories; 160 bytes.
ROW: Final = np.dtype([("label", "<i4"), ("num", "<f4", (N_NUMERIC,)), ("cat", "<i4", (N_CATEGORICAL,))])
#: The batch size of the paper's throughput experiments.
BATCH: Final = 65_536
#: Rows per file in the paper.
ROWS_PER_FILE: Final = 180_000

#: What a batch is made of, in the words of ``fastpath.Columns``: name, fields of the row, dtype.
GROUPS: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "num": (("num",), "float32"),
    "cat": (("cat",), "int64"),
    "label": (("label",), "float32"),
}


def batch_of(words: npt.NDArray[np.int32]) -> dict[str, Tensor]:
    """A batch out of rows: ``num float32[B, 13]``, ``cat int64[B, 26]``, ``label float32[B]``.

    ``words`` are the rows as ``int32[B, 40]``; one vectorised conversion for each of the three.
    """
    with warnings.catch_warnings():
        # Bytes of a file that was read are not writable; nothing writes to them.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        table = torch.from_numpy(words)
    numeric = table[:, 1 : 1 + N_NUMERIC].view(torch.float32).contiguous()
    return {"num": numeric, "cat": table[:, 1 + N_NUMERIC :].long(), "label": table[:, 0].float()}


def words_of(data: Any) -> npt.NDArray[np.int32]:
    """Bytes of whole rows as ``int32[n, 40]``, without a copy."""
    return np.frombuffer(data, np.int32).reshape(-1, ROW.itemsize // 4)


def digest(batch: Mapping[str, Any]) -> str:
    """Hex digest over shapes, dtypes and bytes of a batch: equal for equal batches only. Tensors, or arrays of ``Columns``."""
    found = hashlib.blake2b(digest_size=16)
    for name, part in flat_label(batch).items():
        values = np.ascontiguousarray(np.asarray(part))
        found.update(f"{name} {values.dtype} {values.shape}".encode())
        found.update(values.data)
    return found.hexdigest()


def flat_label(batch: Mapping[str, Any]) -> dict[str, Any]:
    """The three parts of a batch; ``label`` as ``[B]``, a view where a group of one field made it ``[B, 1]``."""
    return {"num": batch["num"], "cat": batch["cat"], "label": batch["label"].reshape(-1)}
