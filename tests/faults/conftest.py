"""The library of faults, built once, and the process whose children suffer them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import injector
from tests.faults.worker import Worker


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library to be named by ``LD_PRELOAD``."""
    return injector.build(tmp_path_factory.mktemp("library"))


@pytest.fixture(scope="session")
def worker(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """A process that has imported everything and forks a child per task."""
    worker = Worker(library, tmp_path_factory.mktemp("worker") / "log.txt")
    yield worker
    worker.stop()
