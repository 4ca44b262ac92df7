"""The S3 server that tests of this folder share."""

from collections.abc import Iterator

import pytest

from tests.model_store.s3 import S3, running


@pytest.fixture(scope="session")
def s3() -> Iterator[S3]:
    with running() as server:
        yield server
