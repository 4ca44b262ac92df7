"""Tensor dtypes as safetensors files spell them, and those it has no spelling for."""

from collections.abc import Mapping
from typing import Final

import torch

#: Codes of the format.
CODES: Final[Mapping[torch.dtype, str]] = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
    torch.float8_e4m3fnuz: "F8_E4M3FNUZ",
    torch.float8_e5m2fnuz: "F8_E5M2FNUZ",
    torch.complex64: "C64",
}

DTYPES: Final[Mapping[str, torch.dtype]] = {code: dtype for dtype, code in CODES.items()}

#: Stored as bytes (``U8`` with the element's bytes as a last dimension); the dtype's name goes into the record.
VIEWED: Final[Mapping[str, torch.dtype]] = {
    "complex128": torch.complex128,
    "complex32": torch.complex32,
    "float8_e8m0fnu": torch.float8_e8m0fnu,
}

VIEWED_NAMES: Final[Mapping[torch.dtype, str]] = {dtype: name for name, dtype in VIEWED.items()}


def name_of(dtype: torch.dtype) -> str:
    """``float32`` for ``torch.float32``."""
    return str(dtype).removeprefix("torch.")


def words_of(dtype: torch.dtype) -> tuple[int, bool]:
    """Bytes of the numbers its elements consist of, and whether these are floats: a complex number is two."""
    return dtype.itemsize // (2 if dtype.is_complex else 1), dtype.is_floating_point or dtype.is_complex


#: All dtypes that can be stored, by ``name_of``.
DTYPE_BY_NAME: Final[Mapping[str, torch.dtype]] = {name_of(dtype): dtype for dtype in [*CODES, *VIEWED_NAMES]}
