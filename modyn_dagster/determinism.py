"""Deterministic computation: seeded generators, a fixed number of threads and deterministic algorithms, restored at the end."""

import contextlib
import os
import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

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


def generator_states(device: torch.device) -> dict[str, Any]:
    """Of Python, NumPy, torch, and of the device that trains."""
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    found: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": (kind, keys, int(position), int(has_gauss), float(cached)),
        "torch": torch.get_rng_state(),
    }
    return found | ({"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {})


def set_generator_states(states: Mapping[str, Any], device: torch.device) -> None:
    """Go on from there."""
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])
    torch.set_rng_state(states["torch"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states["cuda"], device)


def seeded(seed: int) -> None:
    """Seed the process's generators; that of a GPU, which transforms have no business with, goes on."""
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
    torch.default_generator.manual_seed(seed & 0x7FFFFFFFFFFFFFFF)


@contextmanager
def preserved_generators() -> Iterator[None]:
    """Whatever is drawn within, the process's generators go on where they were."""
    python, numpy, torch_ = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(torch_)


def generator_snapshot() -> tuple[object, ...]:
    """Tells whether the process's generators have moved."""
    kind, keys, *place = np.random.get_state(legacy=True)
    return random.getstate(), kind, np.asarray(keys).tobytes(), tuple(place), torch.get_rng_state().numpy().tobytes()
