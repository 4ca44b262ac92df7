from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.ingestion.labels.label_world import LabelWorld


@pytest.fixture
def world(engine: sa.Engine, home: Path, tmp_path: Path) -> LabelWorld:
    for name in ("data", "labels"):
        (tmp_path / name).mkdir()
    return LabelWorld(engine, home, tmp_path / "data")
