"""Files that cannot be read: they hide no damage, are never called repaired, and stop neither verification nor repair."""

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
import torch

from modyn_dagster.errors import DatabaseDown, StorageError, UnknownName
from modyn_dagster.ingestion.history import import_history
from modyn_dagster.pipeline.integrity.checks.check import Check
from modyn_dagster.pipeline.integrity.checks.models import weight_checks
from modyn_dagster.pipeline.integrity.finding import Finding
from modyn_dagster.pipeline.integrity.pacing import Pace
from modyn_dagster.pipeline.integrity.scope import Scope
from modyn_dagster.pipeline.integrity.verification import Outcome, repair, verify
from tests.pipeline.integrity.homes import files_of, findings, flip, repaired
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, amount, batch_text

LOST = Finding("models", "damaged", "models/a", "somebody", "other bytes", "repair it")


def make_unreadable(path: Path) -> None:
    """Put a socket in place of a file: opening it fails with an error that is no damage."""
    path.unlink()
    os.mknod(path, stat.S_IFSOCK | 0o600)


def pace_with(step: int, action: Callable[[], object]) -> Pace:
    """A pace without a bound; it acts when bytes are counted for this time, from 1."""
    n = 0

    def clock() -> float:
        nonlocal n
        n += 1
        if n == step:
            action()
        return 0.0

    return Pace(clock=clock)


@pytest.mark.parametrize("error", [OSError(errno.ESTALE, "stale"), StorageError("no answer"), UnknownName("dataset", "none")])
def test_damage_found_before_an_error_stays_beside_it(error: Exception, tmp_path: Path) -> None:
    def found(_: Pace) -> Iterator[Finding]:
        yield LOST
        raise error

    def holds() -> bool:
        raise error

    for check in (Check(["models"], [], found), Check(["models"], [], lambda _: iter([LOST]), holds)):
        damage, unread = check.run(tmp_path, Pace())
        assert (damage, unread.state, unread.fault) == (LOST, "unverified", str(error))


def test_a_database_that_does_not_answer_ends_a_verification(tmp_path: Path) -> None:
    def found(_: Pace) -> Iterator[Finding]:
        yield LOST
        raise DatabaseDown("here")

    with pytest.raises(DatabaseDown):
        Check(["models"], [], found).run(tmp_path, Pace())


def test_a_source_file_that_cannot_be_read_or_was_replaced_hides_no_other(world_of: Callable[..., World]) -> None:
    world = world_of()
    files = [world.folder / "data" / f"day_{day:02d}.csv" for day in range(4)]
    for day, path in enumerate(files):
        path.write_text(batch_text(day))
    platform = world.platform
    root = platform.project.root_of(DATASET)
    import_history(platform.engine, platform.home, platform.dataset(DATASET), root, by="count:160")
    assert len(files_of(world, "indexes")) == 1
    for path in (files[0], files[2], files[3]):
        flip(path, 60)
    make_unreadable(files[1])
    states = ["damaged", "unverified", "damaged", "damaged"]
    expected = [(state, str(path)) for state, path in zip(states, files, strict=True)]
    assert [(finding.state, finding.path) for finding in findings(world, dataset=DATASET)] == expected

    def replace() -> None:
        with platform.transaction() as conn:
            conn.execute(sa.text("update source_file set checksum = 'other' where path = :path"), {"path": files[0].name})

    scope = Scope.of(platform, kinds=["sources"])
    found = list(verify(platform, scope, pace_with(2, replace)))
    assert [(finding.state, finding.path) for finding in found] == expected[1:]


def test_a_store_that_nothing_opens_hides_no_damage(world_of: Callable[..., World]) -> None:
    """As that of a run whose extra of fsspec is not installed any more."""
    world = replayed(world_of)
    with world.platform.transaction() as conn:
        statement = """update pipeline_spec set spec = jsonb_set(spec, '{model_store, root}', '"gone://models"')"""
        conn.execute(sa.text(statement))
    (world.folder / "pipelines" / "by_amount.yaml").unlink()
    world.reload()
    predicted = files_of(world, "predictions")[0]
    flip(predicted, predicted.stat().st_size // 2)
    found = findings(world)
    assert [(finding.kind, finding.state) for finding in found] == [
        ("models", "unverified"),
        ("predictions", "damaged"),
        ("unnamed", "unverified"),
    ]
    assert all("gone://models" in finding.fault for finding in found if finding.state == "unverified")
    states = {outcome.finding.kind: outcome.is_repaired for outcome in repaired(world)}
    assert states == {"models": False, "predictions": False}


def test_nothing_counts_as_repaired_that_could_not_be_read_again(world_of: Callable[..., World]) -> None:
    world = replayed(world_of)
    # Made again, and removed before it is read again.
    model = files_of(world, "models")[0]
    flip(model, model.stat().st_size // 2)
    outcomes = outcomes_of(world, "models", pace_with(2, model.unlink))
    assert {outcome.is_repaired for outcome in outcomes} == {False}
    assert {outcome.finding.state for outcome in outcomes} == {"damaged", "missing"}
    # One is not made again, for its model is lost, and not read again, either. The others were not read in the first place.
    shutil.rmtree(world.platform.home / "models")
    damaged, *others = files_of(world, "predictions")
    flip(damaged, damaged.stat().st_size // 2)
    for path in others:
        make_unreadable(path)
    outcomes = outcomes_of(world, "predictions", pace_with(1, lambda: make_unreadable(damaged)))
    assert others
    assert {outcome.is_repaired for outcome in outcomes} == {False}
    reasons = {
        str(world.platform.home / outcome.finding.path): outcome.reason for outcome in outcomes if outcome.finding.is_fault
    }
    assert "no model" in reasons[str(damaged)]
    unread = {outcome.finding.path for outcome in outcomes if outcome.finding.state == "unverified"}
    assert unread == {str(path.relative_to(world.platform.home)) for path in [damaged, *others]}


def test_cached_weights_that_were_removed_meanwhile_are_no_finding(world_of: Callable[..., World]) -> None:
    world = world_of()
    cache = world.platform.weight_cache
    removed, damaged = (cache.save({"weight": torch.full((4,), float(n))}) for n in range(2))
    checks = list(weight_checks(world.platform))
    cache.delete(removed)
    path = cache.info(damaged).path
    flip(Path(path), Path(path).stat().st_size - 1)
    found = [finding.state for check in checks for finding in check.run(world.platform.home, Pace())]
    assert found == ["damaged"]
    assert [outcome.is_repaired for outcome in repaired(world, kinds=["weights"])] == [True]


def replayed(world_of: Callable[..., World]) -> World:
    world = world_of(amount(every=40))
    world.deliver([0, 1])
    world.replay("by_amount")
    return world


def outcomes_of(world: World, kind: str, pace: Pace) -> list[Outcome]:
    return list(repair(world.platform, Scope.of(world.platform, kinds=[kind]), pace))  # type: ignore[list-item]
