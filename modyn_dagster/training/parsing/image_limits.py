"""Limits on encoded images, checked before anything is decoded: a header of a few bytes can claim gigabytes of pixels."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from modyn_dagster.errors import ConfigError

PIXELS: Final = "MODYN_MAX_IMAGE_PIXELS"
BYTES: Final = "MODYN_MAX_IMAGE_BYTES"
#: Pillow refuses what is larger.
_MOST_PIXELS: Final = 178_956_970
#: A block of 8 by 8 pixels takes at least one bit of a JPEG file.
_PIXELS_PER_BYTE: Final = 512


class ImageTooLarge(ValueError):
    """Image whose header or size is out of bounds."""


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """Most pixels and most bytes of an encoded image.

    The defaults hold a photograph of 8,192 by 8,192 pixels, 192 MiB in memory.
    """

    pixels: int = 1 << 26
    bytes: int = 1 << 26

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Self:
        """Limits of this process. Raises ``ConfigError`` for a value that is no number in range."""
        env = os.environ if environment is None else environment
        given = {"pixels": _number(env, PIXELS, _MOST_PIXELS), "bytes": _number(env, BYTES, None)}
        return cls(**{name: value for name, value in given.items() if value is not None})

    def require_bytes(self, size: int) -> None:
        """Raise ``ImageTooLarge`` for an encoded image of too many bytes."""
        if size > self.bytes:
            raise ImageTooLarge(f"{size:,} bytes, expected at most {self.bytes:,}; {BYTES} sets the limit")

    def require_pixels(self, height: int, width: int) -> None:
        """Raise ``ImageTooLarge`` for a header that claims too many pixels."""
        if height * width > self.pixels:
            claim = f"{height:,} x {width:,} pixels"
            raise ImageTooLarge(f"its header claims {claim}, expected at most {self.pixels:,} in all; {PIXELS} sets the limit")

    def require_jpeg(self, height: int, width: int, size: int) -> None:
        """Raise ``ImageTooLarge`` for a JPEG header that claims too many pixels, or more than its bytes can hold."""
        self.require_pixels(height, width)
        if height * width > size * _PIXELS_PER_BYTE:
            raise ImageTooLarge(f"its header claims {height:,} x {width:,} pixels, more than {size:,} bytes of JPEG can hold")


def _number(environment: Mapping[str, str], name: str, most: int | None) -> int | None:
    text = environment.get(name)
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 18 or int(text) < 1 or (most is not None and int(text) > most):
        raise ConfigError("environment", name, text, f"must be a whole number from 1{f' to {most}' if most else ''}")
    return int(text)
