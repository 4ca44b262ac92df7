from collections.abc import Iterator

import pytest

from tests.pipeline.notification.receiver import Receiver, receiving


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """A receiver that takes everything; it is reached without a proxy."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with receiving() as serving:
        yield serving
