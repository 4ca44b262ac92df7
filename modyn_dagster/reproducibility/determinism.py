"""Deterministic computation: seeded generators, a fixed number of threads and deterministic algorithms, restored at the end."""

import os
import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import torch

from modyn_dagster.reproducibility.devices import CUBLAS_WORKSPACE, REPEATABLE
from modyn_dagster.reproducibility.randomness import seed_for

# Threads, algorithms and generators belong to the process, so only one caller at a time may fix them.
_TURN: Final = threading.RLock()
# cuBLAS alone reads its variable.
_HAS_CUBLAS: Final = torch.version.cuda is not None


@contextmanager
def reproducible(seed: int, *, threads: int, deterministic: bool = True) -> Iterator[None]:
    """Seed every generator that user code may draw from, fix threads and algorithms, and restore all of them at the end.

    Other threads of the process that ask for the same wait until then.
    """
    with fixed_algorithms(threads, deterministic=deterministic), restored_generators():
        seed_all_generators(seed)
        yield


def seed_all_generators(seed: int) -> None:
    """Seed every generator of the process, those of GPUs included, each with a number of its own."""
    random.seed(seed_for(seed, "python"))
    np.random.seed(seed_for(seed, "numpy"))
    torch.manual_seed(seed_for(seed, "torch"))


class fixed_algorithms:  # noqa: N801 - used as a function; a class is faster around every prediction
    """Use this many threads. With ``deterministic``, an operation without a deterministic implementation raises an error.

    Other threads of the process that ask for fixed algorithms wait until the end, which restores all settings. Each one is
    read before it is set: reading costs a tenth of setting.
    """

    __slots__ = ("_algorithms", "_benchmark", "_deterministic", "_n_threads", "_threads", "_workspace")

    def __init__(self, threads: int, *, deterministic: bool) -> None:
        self._threads, self._deterministic = threads, deterministic

    def __enter__(self) -> None:
        _TURN.acquire()
        self._n_threads, self._benchmark = torch.get_num_threads(), torch.backends.cudnn.benchmark
        self._algorithms = _algorithms()
        self._workspace = os.environ.get(CUBLAS_WORKSPACE) if _HAS_CUBLAS else None
        try:
            _set_threads(self._threads)
            _set_algorithms((self._deterministic, False))
            if self._benchmark:
                torch.backends.cudnn.benchmark = False
            if self._deterministic and _HAS_CUBLAS:
                os.environ[CUBLAS_WORKSPACE] = self._workspace or REPEATABLE
        except BaseException:
            self._restore()
            raise

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _restore(self) -> None:
        try:
            _set_threads(self._n_threads)
            _set_algorithms(self._algorithms)
            if torch.backends.cudnn.benchmark != self._benchmark:
                torch.backends.cudnn.benchmark = self._benchmark
            if _HAS_CUBLAS and self._workspace is None:
                os.environ.pop(CUBLAS_WORKSPACE, None)
        finally:
            _TURN.release()


def _algorithms() -> tuple[bool, bool]:
    """Two settings of torch: insist on deterministic algorithms, and only warn."""
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def _set_algorithms(algorithms: tuple[bool, bool]) -> None:
    if _algorithms() != algorithms:
        torch.use_deterministic_algorithms(algorithms[0], warn_only=algorithms[1])


def _set_threads(threads: int) -> None:
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)


@contextmanager
def restored_generators() -> Iterator[None]:
    """Restore every generator of the process at the end, those of GPUs included.

    Other threads of the process that ask for fixed algorithms or restored generators wait until then.
    """
    with _TURN:
        devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]  # torch has no type for it
        with preserved_generators(), torch.random.fork_rng(devices):
            yield


@contextmanager
def preserved_generators() -> Iterator[None]:
    """Restore the generators of Python, NumPy and torch's CPU at the end."""
    python, numpy, cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(cpu)


def generator_states(device: torch.device) -> dict[str, Any]:
    """States of the generators of Python, NumPy, torch and the training device, for a checkpoint."""
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    states: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": (kind, keys, int(position), int(has_gauss), float(cached)),
        "torch": torch.get_rng_state(),
    }
    return states | ({"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {})


def set_generator_states(states: Mapping[str, Any], device: torch.device) -> None:
    """Set the generators to the states of a checkpoint."""
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])
    torch.set_rng_state(states["torch"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states["cuda"], device)


def seed_generators(seed: int) -> None:
    """Seed the generators of Python, NumPy and torch's CPU. Those of GPUs go on: transforms draw nothing from them."""
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
    torch.default_generator.manual_seed(seed & 0x7FFFFFFFFFFFFFFF)


def generator_snapshot() -> tuple[object, ...]:
    """A value that changes whenever a generator of the process is drawn from."""
    kind, keys, *position = np.random.get_state(legacy=True)
    return random.getstate(), kind, np.asarray(keys).tobytes(), tuple(position), torch.get_rng_state().numpy().tobytes()
