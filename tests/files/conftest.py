"""Nodes that share a store, each with a home of its own."""

from collections.abc import Callable
from pathlib import Path

import pytest

from modyn_dagster.files.mounting import home_of_files

#: Bytes of copies that a node keeps: more than any test here writes.
PLENTY = 10**9


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    """A folder that all nodes see."""
    return f"file://{tmp_path}/store"


@pytest.fixture
def node(tmp_path: Path, store_url: str) -> Callable[..., Path]:
    """Opens a node by its name, and returns the folder that names of files are relative to there."""

    def opened(name: str, limit: int = PLENTY, url: str = store_url) -> Path:
        return home_of_files(tmp_path / name, url, limit)

    return opened
