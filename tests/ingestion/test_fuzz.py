"""Mutations of whole input files: each is read, or refused with a reason, and never an exception that nobody foresaw."""

import subprocess
import sys
from pathlib import Path

import pytest

from modyn_dagster.catalog.database.failures import TRACEBACK
from tests.ingestion.mutating import mutated
from tests.ingestion.poison import FORMATS
from tests.ingestion.world import World, dataset_spec

ROOT = Path(__file__).parents[2]
KINDS = ("csv", "jsonl", "parquet", "fixed_rows")
#: Files that a child process reads: representatives, and those of a night.
IN_MEMORY = [(500, 1), *(pytest.param(10_000, seed, marks=pytest.mark.soak("fuzz")) for seed in (2, 3))]
#: Files that are imported with their database.
IMPORTED = [(40, 1), pytest.param(1_500, 2, marks=pytest.mark.soak("fuzz"))]


@pytest.mark.soak("laws-data")
@pytest.mark.process
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "seed"), IN_MEMORY)
def test_any_file_is_read_as_its_rows_are_alone_or_refused(tmp_path: Path, kind: str, n: int, seed: int) -> None:
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.ingestion.fuzz_formats", kind, str(tmp_path), str(seed), str(n)]
    child = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=900)
    assert child.returncode == 0, f"exit {child.returncode} with the file as it is in {tmp_path}\n{child.stderr[-6000:]}"
    # A fuzzer all of whose files are refused at the door tries nothing behind it.
    assert int(child.stdout) > n / 50


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "seed"), IMPORTED)
def test_any_files_are_imported_or_fail_one_by_one(world: World, kind: str, n: int, seed: int) -> None:
    spec = dataset_spec(**{"attributes": ["s"], **FORMATS[kind], "batches": {"kind": "file", "pattern": "*"}})
    done = {}
    for i, (what, content) in enumerate(mutated(kind, seed, n)):
        world.write(f"f{i}", content)
        done[f"f{i}"] = what
    world.run_import(spec)
    batches = world.batches(spec)
    assert len(batches) == n
    assert {done[b.partition_key]: b.source[TRACEBACK] for b in batches if TRACEBACK in b.source} == {}
    assert {batch.state for batch in batches} == {"ingested", "failed"}
    # What was ingested is read.
    assert len(world.reader(spec).read(world.keys(spec)).keys) == len(world.rows(spec))
