"""The benchmark of ingestion runs from end to end on little data and reports every figure."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.csv as arrow_csv
import pytest
import sqlalchemy as sa

from benchmarks.contenders import loads as others
from benchmarks.figures.ingesting import write_rows
from benchmarks.figures.metadata import sample_rows
from benchmarks.ingestion import main
from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.catalog.datasets import partition_of, sample
from modyn_dagster.catalog.registration.datasets import ensure_dataset
from modyn_dagster.catalog.samples import copy_samples
from tests.ingestion.world import dataset_spec

ROOT = Path(__file__).resolve().parents[2]


def test_the_file_has_ten_columns_and_ascending_times(tmp_path):
    write_rows(tmp_path / "rows.csv", 1_000)
    table = arrow_csv.read_csv(tmp_path / "rows.csv")
    assert (len(table), len(table.column_names)) == (1_000, 10)
    times = table["time"].to_numpy()
    assert (times[1:] > times[:-1]).all()


def test_every_way_to_load_samples_loads_the_same(engine):
    rows, found = sample_rows(3, 500), []
    with transaction(engine) as conn:
        dataset_id = ensure_dataset(conn, dataset_spec()).id
    leaf = partition_of(dataset_id)
    ways: list[Callable[[sa.Connection], None]] = [
        lambda conn: copy_samples(conn, dataset_id, rows),
        lambda conn: others.copy_text(conn, leaf, others.arrow_csv_of(rows)),
        lambda conn: others.copy_text(conn, leaf, others.pandas_csv(rows)),
        lambda conn: others.insert(conn, leaf, rows),
    ]
    for load in ways:
        with engine.connect() as conn:
            load(conn)
            found.append(conn.execute(sample.select().order_by(sample.c.key)).all())
            conn.rollback()
    assert len(found[0]) == 500
    assert found[1:] == found[:1] * 3


def test_an_unknown_figure_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr("sys.argv", ["ingestion.py", "--only", "F99"])
    with pytest.raises(SystemExit) as refused:
        main()
    assert refused.value.code == 2
    assert "no group F99; there are F14, F15, F15.late, F16" in capsys.readouterr().err


@pytest.mark.soak("benchmarks")
@pytest.mark.process
def test_the_command_writes_a_figure_with_its_five_fields(scratch):
    out = scratch / "out.json"
    command = [sys.executable, str(ROOT / "benchmarks/ingestion.py"), "--quick", "--only", "F16", "--rows", "40000"]
    subprocess.run([*command, "--json", str(out), "--work", str(scratch)], check=True, capture_output=True, cwd=scratch)
    found = json.loads(out.read_text())
    assert {"F16", "F16.read", "load", "foreign"} <= set(found)
    assert all(set(figure) == {"value", "unit", "min", "max", "goal"} for figure in found.values())
    assert list(scratch.iterdir()) == [out]
