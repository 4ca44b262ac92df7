"""Samples named by their ids, for deletion and lineage."""

import numpy as np
import pytest

from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.errors import ConfigError
from modyn_dagster.ingestion.deletion.delete import delete_samples
from modyn_dagster.ingestion.deletion.keys import chosen_keys
from modyn_dagster.ingestion.deletion.purge import purge_samples
from modyn_dagster.keys import key_of
from modyn_dagster.spec.dataset import DatasetSpec
from tests.ingestion.labels.label_world import LabelWorld, later_spec, samples
from tests.ingestion.world import dataset_spec


def named(world: LabelWorld, spec: DatasetSpec, text: str) -> list[int]:
    with transaction(world.engine) as conn:
        return [int(key) for key in chosen_keys(conn, world.home, spec, world.dataset(spec), "ids", text)]


def test_ids_are_a_line_of_csv_in_any_order(world: LabelWorld) -> None:
    spec = later_spec()
    world.write("1.csv", samples(1, ["a", '"b,c"']))
    world.write("2.csv", samples(2, ["d|e", "f"]))
    world.run_import(spec)
    assert named(world, spec, 'f, "b,c",f') == [key_of(0, 1), key_of(1, 1)]
    assert named(world, spec, "d|e") == [key_of(1, 0)]


def test_an_id_of_several_columns_has_bars_between_them(world: LabelWorld) -> None:
    spec = later_spec(id={"source": "columns", "columns": ["id", "x"]})
    world.write("1.csv", "time,id,x\n2024-01-01,7,A\n2024-01-02,7,B\n")
    world.run_import(spec)
    assert named(world, spec, "7|B") == [key_of(0, 1)]
    with pytest.raises(ConfigError, match=r"--ids: must be the id of a sample that was ingested \(found \"\('7', 'C'\)\"\)"):
        named(world, spec, "7|A,7|C")


@pytest.mark.parametrize("text", ["", "7,", "9", "7 8"])
def test_the_first_id_that_no_sample_has_is_named_and_nothing_is_chosen(world: LabelWorld, text: str) -> None:
    spec = later_spec()
    world.write("1.csv", samples(1, [7, 8]))
    world.run_import(spec)
    with pytest.raises(ConfigError, match="--ids: must be the id of a sample that was ingested"):
        named(world, spec, text)


def test_a_dataset_without_ids_says_so(world: LabelWorld) -> None:
    spec = dataset_spec()
    world.write("1.csv", "time,x,label\n2024-01-01,1,a\n")
    world.run_import(spec)
    with pytest.raises(ConfigError, match="samples have no ids here"):
        named(world, spec, "7")


def test_a_purge_removes_labels_and_ids_and_a_later_label_waits(world: LabelWorld) -> None:
    spec = later_spec()
    world.write("1.csv", samples(1, ["ann", "bob"]))
    world.run_import(spec)
    world.write_labels("a.csv", "ann,1,2024-01-03\nbob,0,2024-01-03\nann,0,2024-01-02\nbob,1,2024-01-02\n")
    world.register_labels(spec, "a.csv")
    world.ingest_labels(spec, "a")
    dataset, [key] = world.dataset(spec), named(world, spec, "ann")
    keys = np.array([key], np.uint64)
    delete_samples(world.engine, world.home, dataset, keys, None)
    purge_samples(world.engine, world.home, spec, dataset, keys)
    assert {row[0] for row in world.known(spec)} == set(named(world, spec, "bob"))
    [batch] = world.label_batches(spec)
    assert batch.findings == {"twice": {"rows": 2, "first": [{"file": "a.csv", "row": 4, "id": "bob"}]}}
    with pytest.raises(ConfigError, match="'ann'"):
        named(world, spec, "ann")
    world.write_labels("b.csv", "ann,0,2024-01-04\n")
    world.register_labels(spec, "b.csv")
    assert world.ingest_labels(spec, "b").n_waiting == 1
