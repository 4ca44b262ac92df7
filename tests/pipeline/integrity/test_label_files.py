"""Repair of label files: they come back with the recorded bytes from what delivered the labels, or stay and it is said why."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
import yaml
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from modyn_dagster.catalog.deletions import lock_deletions
from modyn_dagster.catalog.labels.label_files import LabelFileFacts, LabelFileRow, label_files, replace_label_file
from modyn_dagster.catalog.labels.sample_ids import keys_of_ids
from modyn_dagster.ingestion.deletion.delete import delete_samples
from modyn_dagster.ingestion.deletion.purge import purge_samples
from modyn_dagster.pipeline.integrity.pacing import Pace
from modyn_dagster.pipeline.integrity.remake.label_files import remake_label_file
from modyn_dagster.pipeline.integrity.scope import Scope
from modyn_dagster.pipeline.integrity.verification import Outcome, repair, verify
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.settings import Settings
from modyn_dagster.spec.dataset import DatasetSpec
from tests.examples import examples
from tests.ingestion.labels.label_world import LabelWorld, later_spec, samples
from tests.pipeline.integrity.homes import flip


class LateHome(LabelWorld):
    """A home and a project with one dataset whose labels arrive later."""

    def __init__(self, engine: sa.Engine, settings: Settings, folder: Path, spec: DatasetSpec) -> None:
        super().__init__(engine, settings.home, folder / "data")
        for name in ("data", "labels", "datasets", "pipelines"):
            (folder / name).mkdir(parents=True)
        self.spec, self.folder, self.settings = spec, folder, replace(settings, project=folder)
        content = spec.model_dump(mode="json", by_alias=True, exclude_unset=True) | {"root": "../data"}
        content["label"]["files"]["root"] = "../labels"
        (folder / "datasets" / f"{spec.name}.yaml").write_text(yaml.safe_dump(content))
        self.platform = Platform.open(self.settings)

    def deliver(self, day: int, ids: Sequence[int | str]) -> None:
        self.write(f"{day}.csv", samples(day, ids))
        self.run_import(self.spec)

    def deliver_labels(self, name: str, rows: str) -> None:
        self.write_labels(f"{name}.csv", rows)
        self.register_labels(self.spec, f"{name}.csv")
        self.ingest_labels(self.spec, name)

    def delete(self, *ids: str, purge: bool = False) -> None:
        with self.platform.transaction() as conn:
            keys, found = keys_of_ids(conn, self.dataset(self.spec).id, ids)
        keys = np.sort(keys[found])
        delete_samples(self.engine, self.home, self.dataset(self.spec), keys)
        if purge:
            purge_samples(self.engine, self.home, self.spec, self.dataset(self.spec), keys)

    @property
    def label_rows(self) -> list[LabelFileRow]:
        with self.platform.transaction() as conn:
            return label_files(conn, self.dataset(self.spec).id)

    @property
    def contents(self) -> dict[Path, bytes]:
        """Bytes of all label files, by path."""
        return {self.home / row.path: (self.home / row.path).read_bytes() for row in self.label_rows}

    def repaired(self) -> list[Outcome]:
        return list(repair(self.platform, Scope.of(self.platform, dataset=self.spec.name, kinds=["labels"]), Pace()))

    def require_all_come_back(self) -> None:
        """Damage every other label file, remove the others, and compare what a repair makes of them."""
        before = self.contents
        for number, path in enumerate(before):
            if number % 2:
                path.unlink()
            else:
                flip(path, path.stat().st_size // 2)
        assert [outcome.reason for outcome in self.repaired() if not outcome.is_repaired] == []
        assert self.contents == before
        assert not list(verify(self.platform, Scope.of(self.platform, kinds=["labels"]), Pace()))


@pytest.fixture
def late(engine: sa.Engine, settings: Settings, tmp_path: Path) -> LateHome:
    return LateHome(engine, settings, tmp_path / "project", later_spec())


def test_labels_that_came_after_their_samples_and_that_waited_for_them_come_back(late: LateHome) -> None:
    late.deliver(1, [7, 8])
    late.deliver_labels("a", "9,cat,2024-01-05\n7,dog,2024-01-03\n7,dog,2024-01-03\n7,cat,2024-01-04\n9,dog,2024-01-04\n")
    late.deliver_labels("b", "10,cow,2024-01-06\n8,cow,2024-01-03\n11,dog,2024-01-05\n")
    late.deliver(2, [9, 10])
    late.deliver(3, [11, 12])
    late.deliver_labels("c", "9,cow,2024-01-07\n12,dog,2024-01-07\n8,dog,2024-01-02\n")
    names = [Path(row.path).stem for row in late.label_rows]
    assert names == ["labels_0_1", "labels_1_2", "samples_1_3", "samples_2_4", "labels_2_5"]
    late.require_all_come_back()


def test_labels_in_the_samples_own_column_come_back(engine: sa.Engine, settings: Settings, tmp_path: Path) -> None:
    spec = later_spec({"from": {"source": "column", "column": "y"}, "kind": "target"})
    late = LateHome(engine, settings, tmp_path / "project", spec)
    for day in (1, 2):
        rows = [f"2024-01-0{day}T0{hour}:00:00,{day}{hour},{'' if hour == day else hour + 0.5}" for hour in range(4)]
        late.write(f"{day}.csv", "\n".join(["time,id,y", *rows, ""]))
    late.run_import(spec)
    late.deliver_labels("a", "11,2.5,2024-01-09\n")
    late.delete("13", "20", purge=True)
    late.delete("10")
    assert [Path(row.path).stem for row in late.label_rows] == ["own_0_0~1", "own_1_1~1", "labels_0_2"]
    late.require_all_come_back()


def test_labels_of_samples_deleted_after_they_arrived_come_back_and_those_deleted_before_do_not(late: LateHome) -> None:
    late.deliver(1, [7, 8, 9])
    late.deliver_labels("a", "10,1,2024-01-05\n9,1,2024-01-05\n")
    late.deliver(2, [10])
    late.delete("7", "10")
    late.deliver_labels("b", "7,0,2024-01-03\n8,1,2024-01-03\n9,1,2024-01-03\n10,0,2024-01-06\n11,0,2024-01-06\n")
    late.delete("8", "9")
    assert [row.n_rows for row in late.label_rows] == [1, 1, 2]
    late.require_all_come_back()


def test_after_a_purge_the_file_that_took_the_old_ones_place_comes_back(late: LateHome) -> None:
    late.deliver(1, ["ann", "bob", "cyd"])
    late.deliver_labels("a", "dan,1,2024-01-05\nann,1,2024-01-03\nbob,0,2024-01-03\ncyd,0,2024-01-03\neve,1,2024-01-05\n")
    late.deliver(2, ["dan", "eve"])
    late.delete("bob")
    late.delete("ann", "eve", purge=True)
    assert [Path(row.path).stem for row in late.label_rows] == ["labels_0_1~1", "samples_1_2~1"]
    late.require_all_come_back()
    late.delete("cyd", "bob", "dan", purge=True)
    assert [(Path(row.path).stem, row.n_rows) for row in late.label_rows] == [("labels_0_1~2", 0), ("samples_1_2~2", 0)]
    late.require_all_come_back()


@pytest.mark.parametrize("change", ["gone", "changed", "longer"])
def test_without_the_delivered_file_nothing_changes_and_one_sentence_says_why(late: LateHome, change: str) -> None:
    late.deliver(1, [7, 8])
    late.deliver_labels("a", "7,1,2024-01-03\n8,0,2024-01-03\n")
    late.deliver_labels("b", "8,1,2024-01-04\n")
    before = late.contents
    damaged, other = before
    flip(damaged, 700)
    source = late.folder / "labels" / "a.csv"
    if change == "gone":
        source.unlink()
    else:
        text = source.read_text()
        source.write_text(text.replace("8,0", "8,1") if change == "changed" else text + "9,1,2024-01-04\n")
    now = damaged.read_bytes()
    [outcome] = late.repaired()
    assert not outcome.is_repaired
    assert outcome.reason.startswith("DataError: a.csv: " if change == "gone" else "ChangedBatch: a.csv: the content changed")
    assert "\n" not in outcome.reason
    assert "MODYN_HOME/labels/d" in outcome.finding.remedy
    assert (damaged.read_bytes(), other.read_bytes()) == (now, before[other])
    assert sorted(path.name for path in damaged.parent.iterdir()) == sorted(path.name for path in before)


def test_a_project_that_names_another_place_of_label_files_says_that_none_is_there(late: LateHome) -> None:
    late.deliver(1, [7])
    late.deliver_labels("a", "7,1,2024-01-03\n")
    (late.folder / "labels").rename(late.folder / "elsewhere")
    [path] = late.contents
    path.unlink()
    [outcome] = late.repaired()
    assert "a.csv" in outcome.reason
    (late.folder / "elsewhere").rename(late.folder / "labels")
    assert [outcome.is_repaired for outcome in late.repaired()] == [True]


def test_a_file_that_a_purge_replaces_meanwhile_does_not_come_back(late: LateHome) -> None:
    late.deliver(1, ["ann", "bob"])
    late.deliver_labels("a", "ann,1,2024-01-03\nbob,0,2024-01-03\n")
    [row] = late.label_rows
    dataset, path = late.dataset(late.spec), late.home / row.path
    content = path.read_bytes()
    path.unlink()
    repair = Thread(target=remake_label_file, args=(late.platform, dataset, row))
    with late.platform.transaction() as conn:
        lock_deletions(conn, dataset.id)
        repair.start()
        repair.join(1)
        new = path.with_stem(f"{path.stem}~1")
        new.write_bytes(content)
        facts = LabelFileFacts(str(new.relative_to(late.home)), row.checksum, row.n_rows, row.parts, row.largest)
        replace_label_file(conn, row.id, facts)
    repair.join()
    assert [file.name for file in path.parent.iterdir()] == [new.name]


IDS = st.integers(0, 11).map(str)
LABELS = st.lists(st.tuples(IDS, st.integers(0, 2), st.integers(10, 12)), min_size=1, max_size=5)
STEPS: st.SearchStrategy[tuple[str, list[Any]]] = st.one_of(
    st.just(("samples", [])),
    st.tuples(st.sampled_from(["announce", "labels", "labels"]), LABELS),
    st.tuples(st.sampled_from(["delete", "purge"]), st.lists(IDS, min_size=1, max_size=3)),
)


@pytest.mark.soak("labels")
def test_whatever_came_and_went_every_label_file_comes_back(engine: sa.Engine, settings: Settings, tmp_path: Path) -> None:
    numbers = count()

    @hypothesis_settings(max_examples=examples(6))
    @given(st.lists(STEPS, min_size=3, max_size=9), st.booleans())
    def check(steps: list[tuple[str, list[Any]]], are_names: bool) -> None:
        name, days = f"d{next(numbers)}", iter(range(4))
        late = LateHome(engine, settings, tmp_path / name, later_spec({} if are_names else {"n_classes": 3}, name=name))
        for number, (kind, content) in enumerate([("samples", []), *steps]):
            if kind == "samples":
                for day in islice(days, 1):
                    late.deliver(day + 1, range(3 * day, 3 * day + 3))
            elif kind in ("announce", "labels"):
                rows = [f"{id},{'abc'[value] if are_names else value},2024-01-{day}\n" for id, value, day in content]
                late.write_labels(f"{number}.csv", "".join(rows))
                late.register_labels(late.spec, f"{number}.csv")
                if kind == "labels":
                    late.ingest_labels(late.spec, str(number))
            else:
                late.delete(*content, purge=kind == "purge")
        for batch in late.label_batches(late.spec):
            late.ingest_labels(late.spec, batch.partition_key)
        late.require_all_come_back()
        late.platform.close()

    check()
