"""Verification of a home: every kind of damage is found and named, nothing sound is, and nothing is written."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from modyn_dagster.catalog.datasets import get_dataset
from modyn_dagster.catalog.runs import list_runs
from modyn_dagster.errors import UnknownName
from modyn_dagster.ingestion.deletion.delete import delete_samples
from modyn_dagster.ingestion.deletion.purge import purge_samples
from modyn_dagster.keys import keys_of
from modyn_dagster.pipeline.integrity.finding import KINDS
from modyn_dagster.pipeline.operate.retention import apply_retention
from modyn_dagster.pipeline.platform import ahead_path, checkpoint_path
from modyn_dagster.settings import Settings
from tests.pipeline.integrity.homes import DERIVED, PACKED, files_of, findings, flip, full_world
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, batch_text, drop


@pytest.fixture
def world(settings: Settings, tmp_path: Path) -> Iterator[World]:
    made = full_world(settings, tmp_path / "project")
    yield made
    made.close()


def content(folder: Path) -> dict[Path, tuple[int, bytes]]:
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()}


def test_a_sound_home_has_no_findings_and_is_left_as_it_is(world: World) -> None:
    before = content(world.platform.home)
    assert findings(world) == []
    assert content(world.platform.home) == before


@pytest.mark.soak("replays")
def test_damage_of_every_kind_is_found_named_and_none_hides_another(world: World) -> None:
    for kind in DERIVED:
        path = files_of(world, kind)[-1]
        flip(path, path.stat().st_size // 2)
    source = sorted((world.folder / "data").iterdir())[1]
    flip(source, 200)
    found = findings(world)
    assert {finding.kind for finding in found} == {*DERIVED, "sources"}
    assert {finding.state for finding in found} == {"damaged"}
    by_kind = {finding.kind: finding.line for finding in found}
    assert f"sources {source} (dataset tiny, batch day_01): expected checksum" in by_kind["sources"]
    assert "`modyn-dagster dataset replace tiny day_01`" in by_kind["sources"]
    assert "pipeline by_amount, replay trigger 000001-" in by_kind["predictions"] or "pipeline online" in by_kind["predictions"]
    assert "`modyn-dagster repair` predicts the same samples again" in by_kind["predictions"]
    assert "\n" not in "".join(by_kind.values())


@pytest.mark.soak("replays")
def test_a_missing_and_a_cut_file_of_every_kind_is_found(world: World) -> None:
    for kind in DERIVED:
        path = files_of(world, kind)[0]
        before = path.read_bytes()
        os.truncate(path, len(before) - 1)
        assert [(finding.kind, finding.state) for finding in findings(world, kinds=[kind])][:1] == [(kind, "damaged")]
        path.unlink()
        # Optimizer states are optional: without them optimizers start afresh, and the log says so.
        expected = [] if kind == "optimizers" else [(kind, "missing")]
        assert [(finding.kind, finding.state) for finding in findings(world, kinds=[kind])][:1] == expected
        path.write_bytes(before)
    assert findings(world) == []


@pytest.mark.soak("replays")
def test_a_scope_reads_the_files_of_one_dataset_or_pipeline(world: World) -> None:
    for kind in DERIVED:
        for path in files_of(world, kind):
            flip(path, path.stat().st_size // 2)
    assert {finding.owner.partition(",")[0] for finding in findings(world, dataset=PACKED)} == {f"dataset {PACKED}"}
    assert {finding.owner.partition(",")[0] for finding in findings(world, pipeline="online")} == {"pipeline online"}
    assert {finding.kind for finding in findings(world, pipeline="by_amount", kinds=["models"])} == {"models"}
    with pytest.raises(UnknownName):
        findings(world, dataset="none")


@pytest.mark.soak("replays")
def test_a_replaced_source_whose_samples_are_deleted_is_not_needed(world: World) -> None:
    """An original may be removed once its samples are deleted."""
    path = world.folder / "data" / "day_00.csv"
    path.unlink()
    assert [(finding.kind, finding.state) for finding in findings(world)] == [("sources", "missing")]
    with world.platform.transaction() as conn:
        dataset = get_dataset(conn, DATASET)
    delete_samples(world.platform.engine, world.platform.home, dataset, keys_of(0, np.arange(40)))
    assert findings(world, dataset=DATASET) == []


@pytest.mark.soak("replays")
def test_what_retention_deletions_and_purges_left_is_no_finding(world: World) -> None:
    with world.platform.transaction() as conn:
        dataset = get_dataset(conn, PACKED)
    keys = keys_of(1, np.array([2, 7]))
    delete_samples(world.platform.engine, world.platform.home, dataset, keys)
    purge_samples(world.platform.engine, world.platform.home, world.platform.dataset(PACKED), dataset, keys)
    apply_retention(world.platform)
    age(world.platform.home)
    assert findings(world) == []


def test_files_that_no_row_names_are_told_and_are_no_fault(world: World) -> None:
    home = world.platform.home
    stray = [home / "predictions" / "000077" / "000001" / "a.arrow", home / "batches" / DATASET / ".9.arrow.abcd.tmp"]
    for path in stray:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"remains")
    # It may be about to be named.
    assert findings(world) == []
    age(home)
    found = findings(world)
    assert sorted(finding.path for finding in found) == sorted(str(path.relative_to(home)) for path in stray)
    assert not any(finding.is_fault for finding in found)
    for kinds in (["unnamed"], ["unnamed", "models"]):
        assert [finding.kind for finding in findings(world, kinds=kinds)] == ["unnamed", "unnamed"]


def test_trainings_ahead_are_stray_files_once_their_run_is_over(world: World) -> None:
    world.tick("online")
    with world.platform.transaction() as conn:
        runs = list_runs(conn)
    for run in runs:
        path = world.platform.home / ahead_path(run.id, 3)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"a model")
        path = world.platform.home / checkpoint_path(run.id, 900)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"a checkpoint")
    age(world.platform.home)
    closed = [run for run in runs if not run.is_open]
    over = {str(path) for run in closed for path in (ahead_path(run.id, 3), checkpoint_path(run.id, 900))}
    assert {finding.path for finding in findings(world)} == over
    assert over
    assert len(closed) < len(runs)


def test_every_kind_of_file_has_a_check(world: World) -> None:
    assert set(KINDS) == {*DERIVED, "sources", "labels", "weights", "unnamed"}


def test_a_file_delivered_anew_with_equal_size_and_time_is_found(world: World) -> None:
    path = world.folder / "data" / "day_02.csv"
    status = path.stat()
    other = batch_text(2, shift=1e-6)
    assert len(other) == status.st_size
    drop(world.folder, "day_02", other)
    os.utime(path, ns=(status.st_mtime_ns, status.st_mtime_ns))
    [finding] = findings(world)
    assert (finding.kind, finding.state, finding.path) == ("sources", "damaged", str(path))


def age(home: Path) -> None:
    """Let all files below a folder be two hours old."""
    for path in home.rglob("*"):
        if path.is_file():
            os.utime(path, (path.stat().st_atime - 7200, path.stat().st_mtime - 7200))
