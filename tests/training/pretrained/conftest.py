from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the network of ``tuned_user_code`` importable, as the folder code/ of a project does."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
