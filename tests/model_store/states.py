"""State dicts of every kind, and what it means to get one back exactly."""

import warnings
from collections.abc import Mapping

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from modyn_dagster.model_store.format.extra_state import PREFIX
from modyn_dagster.model_store.format.tensors import CODES, VIEWED_NAMES

DTYPES = [*CODES, *VIEWED_NAMES]
#: Without what wrappers put in front of names, and what extra state has: hypothesis draws texts that it finds in our code, too.
NAMES = st.text(max_size=12).filter(
    lambda name: name != "__metadata__" and "_orig_mod." not in name and "module." not in name and not name.startswith(PREFIX)
)


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    """Any bit pattern of any dtype in up to three dimensions, contiguous or not."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
    n_bytes = int(np.prod(shape)) * dtype.itemsize
    content = bytearray(draw(st.binary(min_size=n_bytes, max_size=n_bytes)))
    if dtype == torch.bool:
        content = bytearray(byte & 1 for byte in content)
    raw = torch.tensor(list(content), dtype=torch.uint8)
    tensor = raw.view(dtype).reshape(shape)
    return tensor.transpose(0, -1) if len(shape) > 1 and draw(st.booleans()) else tensor


STATES = st.dictionaries(NAMES, tensors(), max_size=6)


def copied(tensor: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "ComplexHalf support is experimental")
        return tensor.clone(memory_format=torch.contiguous_format)


def raw(tensor: Tensor) -> bytes:
    return copied(tensor).resolve_conj().resolve_neg().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()


def assert_exact(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    assert list(found) == list(expected)
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype, name
        assert found[name].shape == tensor.shape, name
        assert raw(found[name]) == raw(tensor), name


def flipped_bit(content: bytes, bit: int) -> bytes:
    """The same bytes but for one bit."""
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)
