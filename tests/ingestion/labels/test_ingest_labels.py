"""Label batches: known labels become label files, others wait; bad files fail alone, with file, row and id."""

from datetime import UTC, datetime
from itertools import permutations

import numpy as np
import pytest

from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.catalog.registration.datasets import ensure_dataset
from modyn_dagster.errors import ChangedBatch, ConfigError, DataError, RunError
from modyn_dagster.ingestion.deletion.delete import delete_samples
from modyn_dagster.ingestion.labels.commit_labels import ReadyLabels, commit_labels
from modyn_dagster.ingestion.labels.read_labels import read_labels
from modyn_dagster.ingestion.replacement import replaceable_batch
from modyn_dagster.ingestion.sources.source import open_source
from modyn_dagster.keys import key_of
from tests.ingestion.labels.label_world import LabelWorld, later_spec, samples


def with_two_days(world: LabelWorld) -> None:
    world.write("1.csv", samples(1, [7, 8]))
    world.write("2.csv", samples(2, [9, 10]))


def test_labels_of_known_samples_become_a_label_file(world: LabelWorld) -> None:
    spec = later_spec()
    with_two_days(world)
    world.run_import(spec)
    world.write_labels("a.csv", "9,1,2024-01-03\n7,0,2024-01-02\n")
    world.register_labels(spec, "a.csv")
    result = world.ingest_labels(spec, "a")
    assert (result.n_labels, result.n_known, result.n_waiting) == (2, 2, 0)
    assert world.known(spec) == [(key_of(0, 0), 0, "2024-01-02T00:00:00", 2), (key_of(1, 0), 1, "2024-01-03T00:00:00", 2)]
    [batch] = world.label_batches(spec)
    assert (batch.state, batch.label_counts, batch.findings) == ("ingested", {"0": 1, "1": 1}, {})
    assert (batch.known_min, batch.known_max) == (datetime(2024, 1, 2, tzinfo=UTC), datetime(2024, 1, 3, tzinfo=UTC))
    assert [tuple(delay) for delay in batch.delays or () if delay[1]] == [("under 7 d", 2)]
    assert {row[2] for row in world.rows(spec)} == {None}


def test_a_label_before_its_sample_waits_and_is_known_from_the_samples_arrival_on(world: LabelWorld) -> None:
    spec = later_spec()
    world.write("1.csv", samples(1, [7, 8]))
    world.run_import(spec)
    world.write_labels("a.csv", "9,1,2024-01-03\n7,1,2024-01-02\n9,0,2024-01-04\n")
    world.register_labels(spec, "a.csv")
    result = world.ingest_labels(spec, "a")
    assert (result.n_known, result.n_waiting) == (1, 2)
    [waiting] = world.waiting(spec)
    assert (waiting.sample_id, waiting.n_labels, waiting.partition_key) == ("9", 2, "a")
    world.write("2.csv", samples(2, [9, 10]))
    world.run_import(spec)
    assert world.waiting(spec) == []
    nine = key_of(1, 0)
    assert world.known(spec)[1:] == [(nine, 0, "2024-01-04T00:00:00", 2), (nine, 1, "2024-01-03T00:00:00", 2)]


def test_labels_before_any_sample_wait_too(world: LabelWorld) -> None:
    spec = later_spec({"kind": "target"})
    world.write_labels("a.csv", "7,1.5,2024-01-02\n")
    world.register_labels(spec, "a.csv")
    world.ingest_labels(spec, "a")
    world.write("1.csv", samples(1, [7, 8]))
    world.run_import(spec)
    assert world.known(spec) == [(0, 1.5, "2024-01-02T00:00:00", 1)]


def test_a_sample_batch_that_is_ingested_after_later_labels_leaves_them_their_own_arrival(world: LabelWorld) -> None:
    spec = later_spec()
    with_two_days(world)
    world.register_all(spec)
    world.write_labels("a.csv", "7,1,2024-01-03\n9,0,2024-01-03\n")
    world.register_labels(spec, "a.csv")
    world.ingest_labels(spec, "a")
    world.ingest(spec, "2")
    world.ingest(spec, "1")
    assert world.known(spec) == [(0, 1, "2024-01-03T00:00:00", 2), (key_of(1, 0), 0, "2024-01-03T00:00:00", 2)]


def test_class_names_are_numbered_by_time_known_then_by_id_also_of_labels_that_wait(world: LabelWorld) -> None:
    spec = later_spec()
    with_two_days(world)
    world.run_import(spec)
    world.write_labels("a.csv", "9,late,2024-01-09\n10,cat,2024-01-03\n8,dog,2024-01-03\nnobody,waits,2024-01-02\n")
    world.register_labels(spec, "a.csv")
    with pytest.raises(DataError, match=r"a\.csv.*'nobody'"):
        world.ingest_labels(spec, "a")
    world.write_labels("b.csv", "9,late,2024-01-09\n10,cat,2024-01-03\n8,dog,2024-01-03\n99,waits,2024-01-02\n")
    world.register_labels(spec, "b.csv")
    world.ingest_labels(spec, "b")
    assert world.dataset(spec).class_names == ("waits", "cat", "dog", "late")
    assert [(key, value) for key, value, _, _ in world.known(spec)] == [(1, 2), (key_of(1, 0), 3), (key_of(1, 1), 1)]
    world.write("3.csv", samples(3, [99]))
    world.run_import(spec)
    assert world.dataset(spec).class_names == ("waits", "cat", "dog", "late")
    assert world.known(spec)[-1][:2] == (key_of(2, 0), 0)


def test_corrections_are_new_rows_and_nothing_is_counted_twice(world: LabelWorld) -> None:
    spec = later_spec()
    with_two_days(world)
    world.run_import(spec)
    world.write_labels("a.csv", "7,0,2024-01-02\n7,0,2024-01-02\n7,1,2024-01-03\n8,1,2023-12-31\n")
    world.register_labels(spec, "a.csv")
    world.ingest_labels(spec, "a")
    [batch] = world.label_batches(spec)
    assert (batch.n_rows, batch.n_known, batch.n_waiting) == (4, 3, 0)
    assert batch.findings == {
        "repeated": {"rows": 1, "first": [{"file": "a.csv", "row": 2, "id": "7"}]},
        "twice": {"rows": 1, "first": [{"file": "a.csv", "row": 3, "id": "7"}]},
        "early": {"rows": 1, "first": [{"file": "a.csv", "row": 4, "id": "8"}]},
    }
    assert [value for _, value, _, _ in world.known(spec)] == [0, 1, 1]


def test_labels_of_deleted_samples_are_left_out_and_named(world: LabelWorld) -> None:
    spec = later_spec()
    with_two_days(world)
    world.run_import(spec)
    delete_samples(world.engine, world.home, world.dataset(spec), world.keys(spec)[:1], "gone")
    world.write_labels("a.csv", "7,0,2024-01-02\n8,1,2024-01-02\n")
    world.register_labels(spec, "a.csv")
    world.ingest_labels(spec, "a")
    [batch] = world.label_batches(spec)
    assert batch.findings == {"deleted": {"rows": 1, "first": [{"file": "a.csv", "row": 1, "id": "7"}]}}
    assert [key for key, *_ in world.known(spec)] == [1]


@pytest.mark.parametrize(
    ("label", "rows", "message"),
    [
        ({"n_classes": 2}, "7,2,2024-01-02\n", r"a\.csv, row 1, column 'label': the class 2 is not in 0 \.\. 1 \(id '7'\)"),
        ({"n_classes": 2}, "7,1,2024-01-02\n8,cat,2024-01-02\n", r"a\.csv, row 2, column 'label'"),
        ({"classes": ["a"]}, "7,b,2024-01-02\n", r"a\.csv, row 1, column 'label': unknown class 'b'.*\(id '7'\)"),
        ({"kind": "target"}, "7,inf,2024-01-02\n", r"row 1, column 'label': the target is inf.*\(id '7'\)"),
        ({}, "7,1,2324-01-02\n", r"a\.csv, row 1, column 'known_at': the label of '7' is known at 2324-01-02.*in the future"),
        ({}, "7,1,soon\n", r"row 1, column 'known_at': the timestamp 'soon'.*\(id '7'\)"),
        ({}, "7,1,2024-01-02\n8,1\n", r"a\.csv, row 2"),
        ({}, "7,,2024-01-02\n", r"row 1, column 'label'"),
        ({}, ",1,2024-01-02\n", r"row 1, column 'id'"),
    ],
)
def test_a_bad_row_fails_its_label_batch_alone(world: LabelWorld, label: dict[str, object], rows: str, message: str) -> None:
    spec = later_spec(label)
    with_two_days(world)
    value = {"classes": "a", "kind": "1.5"}.get(next(iter(label), ""), "1")
    world.write_labels("a.csv", rows)
    world.write_labels("b.csv", f"8,{value},2024-01-02\n")
    summary = world.import_all(spec)
    assert [key for key, _ in summary.failed_labels] == ["a"]
    with pytest.raises(DataError, match=message):
        raise summary.failed_labels[0][1]
    assert {batch.partition_key: batch.state for batch in world.label_batches(spec)} == {"a": "failed", "b": "ingested"}
    assert [key for key, *_ in world.known(spec)] == [1]
    assert world.waiting(spec) == []


def test_a_corrected_file_is_delivered_again_once(world: LabelWorld) -> None:
    spec = later_spec({"n_classes": 2})
    with_two_days(world)
    world.write_labels("a.csv", "7,5,2024-01-02\n8,1,2024-01-02\n")
    world.import_all(spec)
    world.write_labels("a.csv", "7,0,2024-01-02\n8,1,2024-01-02\n")
    first = world.look_at_labels(spec)
    assert first.registered == []
    [again] = world.look_at_labels(spec, first).registered
    assert (again.partition_key, again.arrival) == ("a~2", 3)
    world.ingest_labels(spec, "a~2")
    assert [value for _, value, _, _ in world.known(spec)] == [0, 1]
    assert world.look_at_labels(spec, first).registered == []
    with pytest.raises(DataError, match="was delivered again as a later label batch"):
        world.ingest_labels(spec, "a")


def test_an_ingested_label_file_that_changed_is_named(world: LabelWorld) -> None:
    spec = later_spec()
    with_two_days(world)
    world.write_labels("a.csv", "7,0,2024-01-02\n")
    world.import_all(spec)
    assert world.ingest_labels(spec, "a").already_ingested
    world.write_labels("a.csv", "7,1,2024-01-02\n")
    with pytest.raises(ChangedBatch, match=r"a\.csv"):
        world.ingest_labels(spec, "a")


def test_names_and_numbers_of_classes_do_not_mix(world: LabelWorld) -> None:
    spec = later_spec()
    with_two_days(world)
    world.write_labels("a.csv", "7,0,2024-01-02\n")
    world.import_all(spec)
    world.write_labels("b.csv", "8,cat,2024-01-02\n")
    [(_, error)] = world.import_all(spec).failed_labels
    assert "integers in earlier batches" in str(error)
    with transaction(world.engine) as conn:
        assert ensure_dataset(conn, spec).class_names == ()


def test_names_and_numbers_of_classes_do_not_mix_where_they_wait(world: LabelWorld) -> None:
    spec = later_spec()
    world.write_labels("a.csv", "7,0,2024-01-02\n")
    world.write_labels("b.csv", "8,yes,2024-01-02\n")
    world.register_labels(spec, "a.csv", "b.csv")
    world.ingest_labels(spec, "a")
    with pytest.raises(DataError, match=r"b\.csv: class labels are text here, and integers in earlier batches"):
        world.ingest_labels(spec, "b")
    with_two_days(world)
    world.run_import(spec)
    assert world.known(spec) == [(0, 0, "2024-01-02T00:00:00", 1)]
    assert world.view(spec).labels(world.batches(spec)[0])[0].tolist() == [0, -1]


@pytest.mark.parametrize(("own", "late"), [("cat", "1"), ("1", "cat")])
def test_names_and_numbers_do_not_mix_between_the_samples_column_and_label_files(world: LabelWorld, own: str, late: str) -> None:
    spec = later_spec({"from": {"source": "column", "column": "y"}})
    world.write_labels("a.csv", f"8,{late},2024-01-02\n")
    world.register_labels(spec, "a.csv")
    world.ingest_labels(spec, "a")
    world.write("1.csv", f"time,id,y\n2024-01-01,7,{own}\n2024-01-02,8,\n")
    [(_, error)] = world.run_import(spec).failed
    assert f"1.csv: class labels are {'text' if own == 'cat' else 'integers'} here, and" in str(error)
    assert world.known(spec) == []


def test_a_spec_does_not_change_the_form_of_labels_that_wait(world: LabelWorld) -> None:
    spec = later_spec()
    world.write_labels("a.csv", "7,dog,2024-01-02\n8,cat,2024-01-03\n")
    world.register_labels(spec, "a.csv")
    world.ingest_labels(spec, "a")
    with pytest.raises(ConfigError, match="label"):
        world.dataset(later_spec({"classes": ["cat", "dog"]}))
    changed = later_spec(format={"kind": "csv", "columns": {"x": "float64"}})
    with_two_days(world)
    world.run_import(changed)
    assert world.dataset(changed).class_names == ("dog", "cat")
    assert [value for _, value, _, _ in world.known(changed)] == [0, 1]


def test_classes_have_the_same_numbers_in_whatever_order_batches_are_ingested(world: LabelWorld) -> None:
    with_two_days(world)
    world.write("3.csv", samples(3, [11]))
    world.write_labels("a.csv", "8,y,2024-01-03\n7,x,2024-01-02\n")
    world.write_labels("b.csv", "9,w,2024-01-02\n11,v,2024-01-05\n")
    world.write_labels("c.csv", "10,r,2024-01-03\n9,q,2024-01-03\n7,p,2024-01-04\n")
    steps = ["1", "2", "3", "a", "b", "c"]
    outcomes = []
    for number, order in enumerate([*permutations(steps)][::160]):
        spec = later_spec(name=f"d{number}")
        world.register_all(spec)
        world.register_labels(spec, "b.csv", "a.csv", arrival=2)
        world.register_labels(spec, "c.csv")
        for key in order:
            world.ingest(spec, key) if key.isdigit() else world.ingest_labels(spec, key)
        view = world.view(spec)
        largest = [view.labelled_as_of(position).largest_class() for position in range(5)]
        outcomes.append((world.dataset(spec).class_names, world.known(spec), largest))
    assert outcomes[0][0] == ("w", "v", "x", "y", "r", "q", "p")
    assert all(outcome == outcomes[0] for outcome in outcomes)


def test_an_earlier_label_batch_that_is_bad_holds_no_later_one_back(world: LabelWorld) -> None:
    spec = later_spec()
    with_two_days(world)
    world.run_import(spec)
    world.write_labels("a.csv", "7,cat,soon\n")
    world.write_labels("b.csv", "8,dog,2024-01-03\n")
    world.register_labels(spec, "a.csv", "b.csv")
    assert world.ingest_labels(spec, "b").n_known == 1
    with pytest.raises(DataError, match=r"a\.csv.*soon"):
        world.ingest_labels(spec, "a")


def test_labels_that_were_read_before_the_first_samples_gave_ids_their_type_are_read_again(world: LabelWorld) -> None:
    spec = later_spec()
    world.write_labels("a.csv", "007,1,2024-01-02\n")
    [batch] = world.register_labels(spec, "a.csv")
    before = world.dataset(spec)
    read = read_labels(open_source(world.label_root, {}), spec, before, batch, np.datetime64("2025-01-01"))
    world.write("1.csv", samples(1, ["007", "x8"]))
    world.run_import(spec)
    with transaction(world.engine) as conn:
        assert not commit_labels(conn, world.home, spec, before, batch, ReadyLabels.of(read))
    assert world.ingest_labels(spec, "a").n_known == 1


def test_a_batch_whose_samples_have_ids_is_not_replaced(world: LabelWorld) -> None:
    spec = later_spec()
    with_two_days(world)
    world.run_import(spec)
    with pytest.raises(RunError, match="a deleted sample keeps its own"):
        replaceable_batch(world.engine, spec, str(world.root), "1")
