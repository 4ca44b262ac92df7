"""A stretch of code whose bits follow from seed, thread count and environment alone; the process is left as it was."""

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
# Threads, algorithms and generators belong to the process.
_TURN: Final = threading.RLock()


@contextlib.contextmanager
def deterministic(seed: int, threads: int) -> Iterator[None]:
    """Seed every generator, use so many threads and deterministic algorithms alone; restore all of it at the end."""
    with _TURN:
        before = torch.get_num_threads(), torch.backends.cudnn.benchmark, os.environ.get(_CUBLAS)
        was = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
        python, numpy = random.getstate(), np.random.get_state()
        try:
            with torch.random.fork_rng():
                torch.set_num_threads(threads)
                torch.use_deterministic_algorithms(True)
                torch.backends.cudnn.benchmark = False
                os.environ[_CUBLAS] = before[2] or ":4096:8"
                random.seed(seed_for(seed, "python"))
                np.random.seed(seed_for(seed, "numpy"))
                torch.manual_seed(seed_for(seed, "torch"))
                yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
            torch.set_num_threads(before[0])
            torch.use_deterministic_algorithms(was[0], warn_only=was[1])
            torch.backends.cudnn.benchmark = before[1]
            if before[2] is None:
                os.environ.pop(_CUBLAS, None)
