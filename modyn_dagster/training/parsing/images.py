"""The parser ``images``: encoded images decoded by several threads into one array.

libjpeg-turbo decodes JPEG, reduced in size where the result is smaller; Pillow decodes everything else.
"""

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import simplejpeg
from PIL import Image

from fastpath.arrays.planes import to_planes
from modyn_dagster.spec.learning.parsing import ImagesSpec
from modyn_dagster.training.memory import empty_aligned
from modyn_dagster.training.parsing.function import Blobs, Columns, ThreadedParts
from modyn_dagster.training.parsing.image_limits import ImageLimits, ImageTooLarge

Pixels = npt.NDArray[np.uint8]
#: ``(height, width) -> shrink``: how many times smaller than stored an image may be decoded.
Shrink = Callable[[int, int], float]

_MAGIC: Final = b"\xff\xd8\xff"


def is_jpeg(data: Any) -> bool:
    """Recognise JPEG by its first bytes."""
    return bytes(data[:3]) == _MAGIC


def decode_jpeg(
    data: Any, channels: int, shrink: Shrink, out: Pixels | None, limits: ImageLimits
) -> tuple[Pixels, int, int, int] | None:
    """Pixels ``[h, w, channels]``, the stored height and width, and how many times smaller each is; None: for Pillow.

    Pillow decodes images in CMYK, huge images and images with faults, since it knows harmless ones. With the exact
    transform and upsampling the pixels of a full-size decode are Pillow's. ``out`` is decoded into if its shape fits.
    Raises ``ImageTooLarge`` before anything is decoded.
    """
    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(data)
        if colours not in ("RGB", "YCbCr", "Gray", "GRAY"):
            return None
        limits.require_jpeg(height, width, len(data))
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
    except ImageTooLarge:
        raise
    except ValueError:
        return None
    return decoded, height, width, factor


def _factor(shrink: float) -> int:
    return next((factor for factor in (8, 4, 2) if factor <= shrink), 1)


#: Formats that are decoded by code alone: others start programs (EPS) or read further files.
_FORMATS: Final = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
#: Pillow's modes of 16 bits per pixel; PNG alone is also read as ``I``.
_SIXTEEN_BITS: Final = frozenset({"I;16", "I;16B", "I;16L", "I;16N"})


@dataclass(frozen=True, slots=True)
class Fit:
    """Part of an image (``box``: top, left, height, width) and its place in the result (``window``, likewise)."""

    box: tuple[float, float, float, float]
    window: tuple[int, int, int, int]

    @classmethod
    def of(cls, spec: ImagesSpec, height: int, width: int) -> Self:
        """Fit an image of a size into the result."""
        rows, columns = spec.size
        whole, full = (0.0, 0.0, float(height), float(width)), (0, 0, rows, columns)
        if spec.resize == "cover":
            scale = max(rows / height, columns / width)
            h, w = min(height, rows / scale), min(width, columns / scale)
            return cls(((height - h) / 2, (width - w) / 2, h, w), full)
        if spec.resize == "contain":
            scale = min(rows / height, columns / width)
            h, w = (max(1, min(most, round(side * scale))) for most, side in ((rows, height), (columns, width)))
            return cls(whole, ((rows - h) // 2, (columns - w) // 2, h, w))
        return cls(whole, full)

    @property
    def shrink(self) -> float:
        """Largest factor by which the image may be reduced without being magnified later."""
        return min(self.box[2] / self.window[2], self.box[3] / self.window[3])


class Images:
    """The parser ``images``: ``features`` of shape ``[n, channels, height, width]`` (``hwc``: channels last).

    Pixels are as stored: no orientation from EXIF, the first frame of several, colours without their alpha, CMYK and palettes
    as RGB, 16 bits as their upper 8. Images of 32 bits a pixel are refused.
    """

    def __init__(self, spec: ImagesSpec) -> None:
        self._spec = spec
        self._pieces = ThreadedParts(spec.workers.count)
        self._limits = ImageLimits.from_environment()

    def __call__(self, blobs: Blobs) -> Columns:
        """Decode images; ``ParseFailed`` for the first that cannot be decoded."""
        spec = self._spec
        shape = (spec.channels, *spec.size) if spec.layout == "chw" else (*spec.size, spec.channels)
        batch = empty_aligned((len(blobs), *shape), spec.dtype)
        self._pieces.decode(blobs, batch, self._decode)
        return {"features": batch}

    def close(self) -> None:
        """End the threads."""
        self._pieces.close()

    def _decode(self, data: Any, out: npt.NDArray[Any]) -> None:
        target = out.transpose(1, 2, 0) if self._spec.layout == "chw" else out
        whole = target if target.dtype == np.uint8 else None
        pixels, fit = self._pixels(data, whole)
        resized = _resized(pixels, fit)
        if whole is not None and np.may_share_memory(resized, whole):
            return
        if self._spec.resize == "contain":
            target[...] = 0
        top, left, height, width = fit.window
        rows, columns = slice(top, top + height), slice(left, left + width)
        if self._spec.layout == "hwc":
            _put(resized, target[rows, columns])
        else:
            # A kernel, because NumPy takes as long for the transposition as the decoding.
            planes = np.empty((target.shape[2], height, width), dtype=np.uint8)
            to_planes(resized, planes)
            _put(planes, out[:, rows, columns])

    def _pixels(self, data: Any, out: Pixels | None) -> tuple[Pixels, Fit]:
        """Decode an image ``[h, w, channels]``, reduced where that suffices, with the fit of its box."""
        spec = self._spec
        self._limits.require_bytes(len(data))
        if is_jpeg(data):
            decoded = decode_jpeg(data, spec.channels, lambda h, w: Fit.of(spec, h, w).shrink, out, self._limits)
            if decoded is not None:
                pixels, height, width, factor = decoded
                fit = Fit.of(spec, height, width)
                top, left, h, w = (side / factor for side in fit.box)
                return pixels, Fit((top, left, h, w), fit.window)
        pixels = _by_pillow(data, spec.channels, self._limits)
        return pixels, Fit.of(spec, *pixels.shape[:2])


def _put(pixels: Pixels, window: npt.NDArray[Any]) -> None:
    if window.dtype == np.uint8:
        window[...] = pixels
    else:
        np.divide(pixels, np.float32(255), out=window)


def _resized(pixels: Pixels, fit: Fit) -> Pixels:
    top, left, height, width = fit.box
    rows, columns = fit.window[2:]
    if (top, left, height, width) == (0, 0, rows, columns) == (0, 0, *pixels.shape[:2]):
        return pixels
    grey = pixels.shape[2] == 1
    image = Image.fromarray(pixels[..., 0] if grey else pixels)
    resized = np.asarray(image.resize((columns, rows), Image.Resampling.BILINEAR, (left, top, left + width, top + height)))
    return resized[..., None] if grey else resized


def _by_pillow(data: Any, channels: int, limits: ImageLimits) -> Pixels:
    with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
        if image.format == "JPEG":
            limits.require_jpeg(image.height, image.width, len(data))
        limits.require_pixels(image.height, image.width)
        image.load()
        converted = _eight_bits(image).convert("RGB" if channels == 3 else "L")
    pixels = np.asarray(converted)
    return pixels if channels == 3 else pixels[..., None]


def _eight_bits(image: Image.Image) -> Image.Image:
    if image.mode in _SIXTEEN_BITS or (image.mode == "I" and image.format == "PNG"):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise ValueError(f"its pixels have 32 bits (mode {image.mode}); images have 8 or 16 bits per channel")
    return image
