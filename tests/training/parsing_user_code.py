"""Parsers as a project would have them; tests name them by import path."""

import os
import signal
import time

import numpy as np
import numpy.typing as npt

Arrays = dict[str, npt.NDArray[np.generic]]


def two_numbers(blobs: list[bytes]) -> Arrays:
    """Columns from bytes such as ``b"1.5,2"``."""
    rows = np.array([[float(part) for part in blob.split(b",")] for blob in blobs])
    return {"left": rows[:, 0], "right": rows[:, 1]}


def images(blobs: list[bytes]) -> Arrays:
    """Four bytes are an image of 2 x 2 pixels."""
    return {"features": np.stack([np.frombuffer(blob, np.uint8).reshape(2, 2) for blob in blobs])}


def one_too_few(blobs: list[bytes]) -> Arrays:
    return {"left": np.zeros(len(blobs) - 1)}


def unparsable(blobs: list[bytes]) -> Arrays:
    raise ValueError("bad magic number")


def one_number(blob: bytes) -> dict[str, float]:
    """Columns from bytes such as ``b"1.5"``."""
    return {"left": float(blob), "digits": len(blob)}


def tiny_image(blob: bytes) -> Arrays:
    """An image of 2 x 2 pixels, one at a time; some bytes end the process."""
    if blob == b"exit":
        os._exit(3)
    if blob == b"kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if blob == b"wait":
        time.sleep(60)
    print("user code may print")  # noqa: T201 - as user code may
    return {"features": np.frombuffer(blob, np.uint8).reshape(2, 2)}


def together_only(blobs: list[bytes]) -> Arrays:
    if len(blobs) > 1:
        raise ValueError("one at a time, please")
    return {"left": np.zeros(1)}


def strings(blobs: list[bytes]) -> Arrays:
    return {"left": np.array(blobs, dtype=object)}


def a_list(blobs: list[bytes]) -> list[int]:
    return []


def lists(blobs: list[bytes]) -> dict[str, list[list[float]]]:
    return {"left": [[float(part) for part in blob.split(b",")] for blob in blobs]}


def ragged(blob: bytes) -> dict[str, list[list[int]]]:
    """Rows of different lengths from ``b"2"`` on."""
    return {"left": [[0] * (i + 1) for i in range(int(blob))]}


def time_or_number(blob: bytes) -> dict[str, np.datetime64 | float]:
    return {"left": np.datetime64("2020-01-01") if blob == b"time" else float(blob)}
