"""Lineage of a sample over many training sets: ``dataset lineage`` of one key, with real files and a real catalog.

    python benchmarks/lineage.py --sets 1000 --keys 100000

A stream of ``sets * keys`` samples in as many batches as sets. Every window reaches back to the beginning, so every set may hold
the key and is searched. The files are written as selections write them. The first call maps the files, the others find them
mapped by nobody, but in the page cache.
"""

import argparse
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

if __name__ == "__main__":
    # The repository's root replaces this folder, so that its modules are found and hide no others.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import numpy as np

from benchmarks.figures.replaying import write_project
from fastpath import Partition
from modyn_dagster.catalog.registration.datasets import ensure_dataset
from modyn_dagster.catalog.results.models import insert_model
from modyn_dagster.catalog.results.training_sets import record_training_set
from modyn_dagster.catalog.runs import create_run, ensure_pipeline, ensure_spec
from modyn_dagster.catalog.triggers import insert_trigger
from modyn_dagster.cli.server import running_database
from modyn_dagster.keys import KeyArray, key_of
from modyn_dagster.pipeline.operate.sample_lineage import lineage_of
from modyn_dagster.pipeline.platform import Platform, training_set_path
from modyn_dagster.selection.training_set import write_training_set
from modyn_dagster.settings import Settings
from modyn_dagster.spec.load import spec_hash

_CALLS = 5
_TIME = datetime(2024, 1, 1, tzinfo=UTC)


def make(platform: Platform, sets: int, keys: int) -> tuple[str, int, int]:
    """Write the training sets and their rows; returns name and id of the dataset, and the number of sets with key 0."""
    spec = next(iter(platform.project.pipelines.values()))
    with platform.transaction() as conn:
        dataset = ensure_dataset(conn, platform.dataset(spec.dataset))
        pipeline_id = ensure_pipeline(conn, spec.name, dataset.id)
        spec_id = ensure_spec(conn, pipeline_id, spec_hash(spec), spec.model_dump(mode="json", by_alias=True))
        run = create_run(conn, pipeline_id=pipeline_id, spec_id=spec_id, mode="replay", seed=0, threads=1)
    rng, holding = np.random.default_rng(0), 0
    for number in range(sets):
        chosen = _chosen(rng, number + 1, keys)
        holding += int(chosen[0] == 0)
        path = training_set_path(run.id, number)
        written = write_training_set(platform.home / path, [Partition(chosen, np.ones(keys, np.float32))])
        until = key_of(number, keys - 1)
        with platform.transaction() as conn:
            trigger = insert_trigger(conn, run.id, key=until, point=until, reason="", state="trained")
            window = {"after": -1, "until": until, "n_pool": (number + 1) * keys, "time_min": _TIME, "time_max": _TIME}
            record_training_set(conn, trigger.id, window | {"n_samples": keys, "path": path, "checksum": written.checksum})
            times = {"train_start": _TIME, "train_end": _TIME, "created_at": datetime.now(UTC)}
            facts = {"n_samples": keys, "architecture": {}, "losses": [], "curve": []}
            insert_model(conn, trigger.id, {"hash": f"{number:032x}", "previous_hash": None, **times, **facts})
    return dataset.name, dataset.id, holding


def _chosen(rng: np.random.Generator, batches: int, keys: int) -> KeyArray:
    """Ascending keys of the first batches, one of every ``batches`` positions."""
    place = np.arange(keys) * batches + rng.integers(0, batches, keys)
    return ((place // keys).astype(np.uint64) << np.uint64(32)) | (place % keys).astype(np.uint64)


def main() -> None:
    """Print the seconds of the first call, and of the fastest and slowest of the others, by the clock and of the processor."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=1000)
    parser.add_argument("--keys", type=int, default=100_000, help="of each set")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_project(Path(folder) / "project", 100, 1)
        settings = Settings(Path(folder) / "project", Path(folder) / "home")
        with running_database(settings):
            platform = Platform.open(settings)
            name, dataset_id, holding = make(platform, asked.sets, asked.keys)
            seconds, busy = list[float](), list[float]()
            for _ in range(_CALLS):
                begin, began = time.perf_counter(), time.process_time()
                found = lineage_of(platform, name, dataset_id, np.zeros(1, np.uint64))
                seconds.append(time.perf_counter() - begin)
                busy.append(time.process_time() - began)
                if len(found.uses) != holding:
                    raise RuntimeError(f"{len(found.uses)} training sets were found, {holding} hold the key")
            platform.close()
    print(f"{asked.sets} sets of {asked.keys:,} keys, {asked.sets * asked.keys:,} in the stream; key 0 is in {holding}")
    print(f"first call {seconds[0]:.3f} s, then {min(seconds[1:]):.3f} to {max(seconds[1:]):.3f} s")
    print(f"of the processor, without Postgres: {busy[0]:.3f} s, then {min(busy[1:]):.3f} to {max(busy[1:]):.3f} s")


if __name__ == "__main__":
    main()
