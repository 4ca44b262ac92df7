from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.ingestion.world import World


@pytest.fixture
def world(engine: sa.Engine, home: Path, tmp_path: Path) -> World:
    root = tmp_path / "data"
    root.mkdir()
    return World(engine, home, root)
