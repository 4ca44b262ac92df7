"""Stores in folders and on fsspec, shared by the tests of this folder."""

import uuid
from collections.abc import Iterator

import pytest

from modyn_dagster.model_store.commit import removal
from tests.model_store.s3 import S3, running


@pytest.fixture(scope="session")
def s3() -> Iterator[S3]:
    """A server with a bucket."""
    with running() as server:
        yield server


@pytest.fixture
def memory_url() -> str:
    """A URL in memory with no store yet."""
    return f"memory://models/{uuid.uuid4().hex}"


@pytest.fixture
def nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removers wait for no saver: they find out at once how that ends."""
    monkeypatch.setattr(removal, "PATIENCE", 0.0)
