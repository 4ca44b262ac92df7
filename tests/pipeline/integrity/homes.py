"""A home with files of every kind, and damage to them."""

from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from modyn_dagster.catalog.datasets import get_dataset
from modyn_dagster.ingestion.deletion.delete import delete_samples
from modyn_dagster.ingestion.history import import_history
from modyn_dagster.keys import keys_of
from modyn_dagster.pipeline.integrity.finding import Finding
from modyn_dagster.pipeline.integrity.pacing import Pace
from modyn_dagster.pipeline.integrity.scope import Scope
from modyn_dagster.pipeline.integrity.verification import Outcome, repair, verify
from modyn_dagster.settings import Settings
from tests.pipeline.world import World, make_world
from tests.projects.tiny import DATASET, Content, amount

#: Dataset whose samples were copied into shards.
PACKED: Final = "packed"
_RTBS: Final = {"strategy": {"kind": "rtbs", "n": 60, "decay": {"keep": 0.5, "after": "1d"}}}


def full_world(settings: Settings, folder: Path) -> World:
    """A home with files of every kind.

    A finished replay with deltas and optimizer states, one with an online strategy, a dataset that is read in place and has
    deletions, and a dataset in shards.
    """
    carried: Content = amount(every=60, model_store={"strategy": "delta"})
    carried["training"] |= {"use_previous_model": True, "carry_optimizer": True, "optimizer": {"name": "adam"}}
    world = make_world(settings, folder, [carried, amount("online", every=60, selection=_RTBS)])
    world.deliver([0, 1, 2])
    with world.platform.transaction() as conn:
        dataset = get_dataset(conn, DATASET)
    delete_samples(world.platform.engine, world.platform.home, dataset, keys_of(0, np.array([3, 5])), "asked for")
    world.replay("by_amount")
    world.replay("online")
    add_packed(world, 3)
    return world


def add_packed(world: World, n_batches: int) -> None:
    """Add a dataset of Parquet files to a project, and ingest it."""
    content = {
        "name": PACKED,
        "root": "../packed",
        "format": {"kind": "parquet"},
        "batches": {"kind": "file", "pattern": "*.parquet"},
        "time": {"source": "column", "column": "time"},
    }
    (world.folder / "datasets" / f"{PACKED}.yaml").write_text(yaml.safe_dump(content))
    (world.folder / "packed").mkdir()
    for i in range(n_batches):
        times = pa.array(1_000_000 * (100 * i + np.arange(50)), pa.timestamp("us", tz="UTC"))
        table = pa.table({"time": times, "x": np.random.default_rng(i).normal(size=50)})
        pq.write_table(table, world.folder / "packed" / f"{i}.parquet")
    world.reload()
    spec = world.platform.dataset(PACKED)
    import_history(world.platform.engine, world.platform.home, spec, world.platform.project.root_of(PACKED))


def findings(world: World, **scope: Any) -> list[Finding]:
    """Findings of a verification."""
    return list(verify(world.platform, Scope.of(world.platform, **scope), Pace()))


def repaired(world: World, **scope: Any) -> list[Outcome]:
    """Outcomes of a repair."""
    return list(repair(world.platform, Scope.of(world.platform, **scope), Pace()))


#: Places of the files of each kind that can be made again, below the home folder.
DERIVED: Final = {
    "deleted-lists": "batches/*/*.deleted",
    "indexes": "batches/*/*.arrow",
    "shards": "shards/*/*.bin",
    "training-sets": "training_sets/*/*.arrow",
    "selector-states": "training_sets/*/*.state.json",
    "predictions": "predictions/*/*/*.*",
    "models": "models/**/*.*",
    "optimizers": "optimizers/*/*.safetensors",
}


def files_of(world: World, kind: str) -> list[Path]:
    """Files of a kind that can be made again."""
    found = sorted(path for path in world.platform.home.glob(DERIVED[kind]) if path.is_file())
    return [path for path in found if kind != "models" or path.suffix in (".safetensors", ".pack")]


def flip(path: Path, position: int, bit: int = 0x40) -> None:
    """Change one byte of a file, in place, with its size and time of change kept."""
    status = path.stat()
    with path.open("r+b") as file:
        file.seek(position)
        [byte] = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ bit]))
    keep_time(path, status.st_mtime_ns)


def keep_time(path: Path, mtime_ns: int) -> None:
    """Give a file back its time of change."""
    import os

    os.utime(path, ns=(mtime_ns, mtime_ns))
