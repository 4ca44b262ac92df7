"""Pixels with their channels side by side to one plane per channel."""

import numpy as np
import numpy.typing as npt

from fastpath._planes import three_planes

Pixels = npt.NDArray[np.uint8]


def to_planes(pixels: Pixels, out: Pixels) -> None:
    """``uint8[h, w, c]`` to ``uint8[c, h, w]``, without Python's lock; fastest for three channels in contiguous memory."""
    height, width, channels = pixels.shape
    if out.shape != (channels, height, width):
        raise ValueError(f"out must have the shape {(channels, height, width)}, not {out.shape}")
    contiguous = pixels.flags.c_contiguous and out.flags.c_contiguous and out.flags.writeable
    if channels == 3 and pixels.size and contiguous and pixels.dtype == out.dtype == np.uint8:
        three_planes(pixels.reshape(-1), out.reshape(3, -1))
    else:
        out[...] = pixels.transpose(2, 0, 1)
