"""A stretch of code whose bits follow from its seed and thread count alone; the process is left as it was."""

import contextlib
import os
import random
import threading
from collections.abc import Iterator
from typing import Final

import numpy as np
import torch

from modyn_dagster.randomness import seed_for

# cuBLAS is deterministic only with a fixed workspace; it reads this when its first handle is made.
_CUBLAS: Final = "CUBLAS_WORKSPACE_CONFIG"
# Threads, algorithms and generators belong to the process: whoever fixes them keeps others from it until the end.
_TURN: Final = threading.RLock()


@contextlib.contextmanager
def reproducible(seed: int, *, threads: int, deterministic: bool = True) -> Iterator[None]:
    """Seed every generator that user code may draw from, fix threads and algorithms, and restore all of it at the end.

    Other threads of the process that ask for the same wait until then.
    """
    with fixed_algorithms(threads, deterministic=deterministic), restored_generators():
        random.seed(seed_for(seed, "python"))
        np.random.seed(seed_for(seed, "numpy"))
        torch.manual_seed(seed_for(seed, "torch"))
        yield


@contextlib.contextmanager
def fixed_algorithms(threads: int, *, deterministic: bool) -> Iterator[None]:
    """Use this many threads; with ``deterministic`` an operation without a deterministic implementation is an error.

    Other threads of the process that ask for the same wait until the end.
    """
    with _TURN:
        yield from _fixed(threads, deterministic)


def _fixed(threads: int, deterministic: bool) -> Iterator[None]:
    before = torch.get_num_threads()
    was = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    benchmark, workspace = torch.backends.cudnn.benchmark, os.environ.get(_CUBLAS)
    try:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic)
        torch.backends.cudnn.benchmark = False
        if deterministic:
            os.environ[_CUBLAS] = workspace or ":4096:8"
        yield
    finally:
        torch.set_num_threads(before)
        torch.use_deterministic_algorithms(was[0], warn_only=was[1])
        torch.backends.cudnn.benchmark = benchmark
        if workspace is None:
            os.environ.pop(_CUBLAS, None)


@contextlib.contextmanager
def restored_generators() -> Iterator[None]:
    """Whatever is drawn within, the generators of the process go on where they were. Others wait, as above."""
    with _TURN:
        yield from _restored()


def _restored() -> Iterator[None]:
    python, numpy = random.getstate(), np.random.get_state()
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]  # torch has no type for it
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
