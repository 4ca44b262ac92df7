"""Arrays as tensors."""

import numpy as np
import pytest
import torch

from modyn_dagster.training.inputs.device import tensor_of

TIMES = np.array(["2020-01-01", "1969-12-31T23:59:59.999999"], dtype="datetime64[us]")


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (TIMES.astype(">M8[us]"), TIMES.astype(np.int64)),
        (np.array([1, 2**40], dtype=">u8"), [1, 2**40]),
        (np.array([1.5, -2], dtype=">f4"), [1.5, -2]),
        (np.array([1, 2**40], dtype="<u8"), [1, 2**40]),
        (TIMES, TIMES.astype(np.int64)),
        (np.array([True, False]), [True, False]),
    ],
)
def test_values_are_the_same_in_either_byte_order(array: np.ndarray, expected: object) -> None:
    tensor = tensor_of(array)
    assert tensor.tolist() == np.asarray(expected).tolist()
    assert tensor.dtype != torch.uint64


def test_memory_is_shared_unless_it_must_not_be_written_to() -> None:
    array = np.arange(3, dtype=np.uint64)
    assert tensor_of(array).data_ptr() == array.ctypes.data
    array.flags.writeable = False
    assert tensor_of(array).data_ptr() != array.ctypes.data
