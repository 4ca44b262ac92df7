"""Parsers of samples whose bytes are the text ``x,y,label``."""

import numpy as np
import numpy.typing as npt


def numbers(blobs: list[bytes]) -> dict[str, npt.NDArray[np.float64]]:
    """The two numbers before the label."""
    x, y, _ = _columns(blobs)
    return {"x": x, "y": y}


def numbers_and_label(blobs: list[bytes]) -> dict[str, npt.NDArray[np.float64]]:
    """All three numbers, the label by its name."""
    x, y, label = _columns(blobs)
    return {"x": x, "label": label, "y": y}


def _columns(blobs: list[bytes]) -> npt.NDArray[np.float64]:
    return np.array([[float(cell) for cell in blob.split(b",")] for blob in blobs]).T
