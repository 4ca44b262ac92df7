"""Scans of converted rows and of files: shards hold the samples until a purge, and those of others are told apart."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from modyn_dagster.ingestion.history import import_history
from modyn_dagster.keys import KeyArray, key_of
from modyn_dagster.pipeline.operate.deletion.report.fingerprints import Fingerprints
from modyn_dagster.pipeline.operate.deletion.report.scan import Scan, scan
from modyn_dagster.pipeline.operate.deletion.report.taking import take_fingerprints
from modyn_dagster.settings import Settings
from tests.pipeline.deleting import delete, purge
from tests.pipeline.world import World, make_world
from tests.projects.tiny import DATASET, amount

#: Position of the sample that goes, and of a row that stays with the same text. Two files with the same bytes are refused.
GONE, TWIN, N = 3, 7, 10


def text_of(i: int) -> str:
    return f"the long secret of person {GONE if i == TWIN else i:03d}"


def write_rows(root: Path) -> None:
    begin = datetime(2024, 1, 1)
    columns = {
        "time": [begin + timedelta(hours=i) for i in range(N)],
        "x": [i + 0.37 for i in range(N)],
        "y": [i * 1.93 for i in range(N)],
        "text": [text_of(i) for i in range(N)],
        "label": [i % 2 for i in range(N)],
    }
    pq.write_table(pa.table(columns), root / "a.parquet")


def write_images(root: Path) -> None:
    for i in range(N):
        folder = root / "day" / str(i % 2)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{datetime(2024, 1, 1, tzinfo=UTC) + timedelta(days=i):%Y%m%d}.png"
        path.write_bytes(np.random.default_rng(i).bytes(9000))
    (root / "day" / "_READY").touch()


FORMATS: dict[str, tuple[Callable[[Path], None], dict[str, object]]] = {
    "parquet": (write_rows, {"format": {"kind": "parquet"}, "batches": {"kind": "file", "pattern": "*.parquet"}}),
    "files": (
        write_images,
        {
            "format": {"kind": "files", "suffixes": [".png"]},
            "batches": {"kind": "directory"},
            "time": {"source": "file_name", "pattern": r"(?P<time>\d{8})", "format": "%Y%m%d"},
            "label": {"kind": "class", "n_classes": 2, "from": {"source": "folder"}},
        },
    ),
}


@pytest.fixture(params=FORMATS)
def world(request: pytest.FixtureRequest, settings: Settings, tmp_path: Path) -> Iterator[World]:
    write, fields = FORMATS[request.param]
    made = make_world(settings, tmp_path / "project", [amount()])
    spec = made.folder / "datasets" / f"{DATASET}.yaml"
    spec.write_text(yaml.safe_dump(yaml.safe_load(spec.read_text()) | fields))
    write(made.folder / "data")
    made.reload()
    dataset = made.platform.project.datasets[DATASET]
    summary = import_history(made.platform.engine, made.platform.home, dataset, made.platform.project.root_of(DATASET))
    assert summary.failed == []
    yield made
    made.close()


def searched(world: World, path: Path) -> Scan:
    return scan(world.platform, world.platform.view(DATASET).row, Fingerprints.read(path))


def test_shards_hold_a_deleted_sample_until_it_is_purged_and_bytes_of_others_are_told_apart(world: World) -> None:
    keys: KeyArray = np.array([key_of(0, GONE)], dtype=np.uint64)
    path = take_fingerprints(world.platform, world.platform.view(DATASET).row, keys, 1, "00" * 16)
    assert searched(world, path).found("found") == [], "the sample is not deleted yet"
    delete(world, keys)
    [finding] = searched(world, path).found("found")
    assert (finding.kind, finding.n_samples) == ("shards", 1)
    assert "stored" in finding.forms
    purge(world, keys)
    result = searched(world, path)
    assert result.found("found") == []
    (world.settings.home / "left").write_bytes(text_of(GONE).encode())
    shared = [finding.path for finding in searched(world, path).found("shared")]
    assert ("left" in shared) is (world.platform.project.datasets[DATASET].format.kind == "parquet")
