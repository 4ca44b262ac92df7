"""Who may change a store when: savers work side by side, whoever removes something works alone.

The lock is the operating system's, on the folder itself: it ends with its holder, however that ends.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def shared(folder: Path) -> Iterator[None]:
    """While models are added: nothing that exists goes away meanwhile."""
    with _locked(folder, fcntl.LOCK_SH):
        yield


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """While something is removed: nobody adds or removes meanwhile."""
    with _locked(folder, fcntl.LOCK_EX):
        yield


@contextlib.contextmanager
def _locked(folder: Path, operation: int) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, operation)
        yield
    finally:
        os.close(descriptor)
