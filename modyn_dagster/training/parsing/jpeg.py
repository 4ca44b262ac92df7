"""JPEG by libjpeg-turbo, decoded at a half, a quarter or an eighth of its size where no more is needed."""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import simplejpeg

Pixels = npt.NDArray[np.uint8]
#: ``(height, width) -> shrink``: how many times smaller than stored an image may be decoded.
Shrink = Callable[[int, int], float]

_MAGIC: Final = b"\xff\xd8\xff"
#: Pixels of an image that is refused as a decompression bomb, as Pillow does.
MAX_PIXELS: Final = 178_956_970


def is_jpeg(data: Any) -> bool:
    """By its first bytes."""
    return bytes(data[:3]) == _MAGIC


def decode_jpeg(data: Any, channels: int, shrink: Shrink, out: Pixels | None) -> tuple[Pixels, int, int, int] | None:
    """Pixels ``[h, w, channels]``, the stored height and width, and how many times smaller each is; None: for Pillow.

    Left to Pillow is one in CMYK, a huge one, and one with faults, about which Pillow knows what is harmless. With the exact
    transform and upsampling the pixels of a full-size decode are Pillow's. ``out`` is decoded into if its shape fits.
    """
    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(data)
        if colours not in ("RGB", "YCbCr", "Gray", "GRAY") or height * width > MAX_PIXELS:
            return None
        factor = _factor(shrink(height, width))
        shape = (-(-height // factor), -(-width // factor), channels)
        decoded = simplejpeg.decode_jpeg(
            data,
            "RGB" if channels == 3 else "GRAY",
            fastdct=False,
            fastupsample=False,
            min_height=shape[0] if factor > 1 else 0,
            min_width=shape[1] if factor > 1 else 0,
            buffer=out if out is not None and out.shape == shape and out.flags.c_contiguous else None,
        )
    except ValueError:
        return None
    return decoded, height, width, factor


def _factor(shrink: float) -> int:
    return next((factor for factor in (8, 4, 2) if factor <= shrink), 1)
