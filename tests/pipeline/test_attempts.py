"""Attempts of a trigger: who may commit, when it fails, and how a run goes on."""

import errno
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from modyn_dagster.catalog import runs, triggers
from modyn_dagster.catalog.registration.datasets import ensure_dataset
from modyn_dagster.errors import (
    ConfigError,
    CorruptFile,
    LostClaim,
    NonFiniteLoss,
    RunError,
    StaleRun,
    StillFailing,
    TrainingError,
    TriggerFailed,
    WriteFailed,
)
from modyn_dagster.pipeline.context import context_of
from modyn_dagster.pipeline.decide.attempts import (
    claim_context,
    give_up_attempt,
    release_attempt,
    require_running,
    working_attempt,
)
from modyn_dagster.pipeline.decide.live_run import resume_run
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.settings import Settings
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.spec.learning.parsing import ImageParserSpec
from modyn_dagster.spec.load import Project, spec_hash
from modyn_dagster.spec.pipeline import PipelineSpec
from tests.examples import examples

DATASET = DatasetSpec.model_validate(
    {
        "name": "d",
        "root": "data",
        "format": {"kind": "csv"},
        "time": {"source": "column", "column": "time"},
        "label": {"from": {"source": "column", "column": "label"}},
    }
)


def pipeline_spec(**values) -> PipelineSpec:
    content = {
        "name": "p",
        "dataset": "d",
        "trigger": {"kind": "amount", "every": 10},
        "training": {"model": {"name": "logistic_regression"}},
        "evaluation": {"intervals": {"every": "1d"}, "matrix": "full"},
    }
    return PipelineSpec.model_validate(content | values)


class FixedPlatform(Platform):
    """A platform on a database that is already there."""

    engine: sa.Engine


def platform_on(engine: sa.Engine, home, spec: PipelineSpec) -> Platform:
    platform = FixedPlatform(Settings(home, home), Project(home, {"d": DATASET}, {"p": spec}))
    platform.__dict__["engine"] = engine
    return platform


def begin(platform: Platform, spec: PipelineSpec) -> tuple[runs.RunRow, triggers.TriggerRow]:
    with platform.transaction() as conn:
        dataset = ensure_dataset(conn, DATASET)
        pipeline_id = runs.ensure_pipeline(conn, "p", dataset.id)
        spec_id = runs.ensure_spec(conn, pipeline_id, spec_hash(spec), spec.model_dump(mode="json", by_alias=True))
        run = runs.create_run(conn, pipeline_id=pipeline_id, spec_id=spec_id, mode="replay", seed=0, threads=1)
        return run, triggers.insert_trigger(conn, run.id, key=9, point=9, reason="10 samples")


def claim_trigger(platform: Platform, trigger: triggers.TriggerRow, dagster_run_id: str) -> triggers.TriggerRow:
    return claim_context(platform, trigger, dagster_run_id).trigger


def caused_by(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def reread(platform: Platform, row: triggers.TriggerRow) -> triggers.TriggerRow:
    with platform.transaction() as conn:
        return triggers.get_trigger(conn, row.id)


@pytest.fixture
def world(engine, home):
    spec = pipeline_spec()
    platform = platform_on(engine, home, spec)
    return platform, *begin(platform, spec)


def test_how_fast_a_run_parses_is_what_its_file_says_now_and_the_rest_what_it_said_at_first(engine, home):
    def spec_with(count: int, **values: Any) -> PipelineSpec:
        images = {"size": [2, 2], "workers": {"count": count}}
        model = {"name": "logistic_regression"}
        return pipeline_spec(training={"model": model, "parser": {"images": images}, **values})

    def workers_and_epochs(spec: PipelineSpec) -> tuple[int, int]:
        run, trigger = begin(platform_on(engine, home, spec_with(1)), spec_with(1))
        context = context_of(platform_on(engine, home, spec), run.pipeline, trigger.partition_key)
        parser = context.spec.training.parser
        assert isinstance(parser, ImageParserSpec)
        return parser.images.workers.count, context.spec.training.epochs

    assert workers_and_epochs(spec_with(4)) == (4, 1)
    assert workers_and_epochs(spec_with(4, epochs=9)) == (1, 1), "another spec is for another run"


def test_a_claim_is_idempotent_for_one_dagster_run_and_lost_for_others(world):
    platform, _, trigger = world
    claimed = claim_trigger(platform, trigger, "one")
    assert (claimed.state, claimed.dagster_run_id) == ("training", "one")
    assert claim_trigger(platform, claimed, "one") == claimed
    with pytest.raises(LostClaim, match="000001-000000"):
        claim_trigger(platform, claimed, "two")


def test_an_attempt_that_was_given_up_can_no_longer_commit(world):
    platform, run, trigger = world
    claimed = claim_trigger(platform, trigger, "one")
    _, following = give_up_attempt(platform, run, claimed, "its process vanished")
    assert (following.state, following.attempt, following.error) == ("pending", 2, "its process vanished")
    with pytest.raises(LostClaim), platform.transaction() as conn:
        triggers.hold(conn, claimed)
    with pytest.raises(LostClaim):
        give_up_attempt(platform, run, claimed, "twice")
    assert claim_trigger(platform, following, "two").state == "training"


def test_a_trigger_fails_after_its_attempts_and_the_run_waits_until_it_is_resumed(world):
    platform, run, trigger = world
    for _ in range(3):
        waiting, trigger = give_up_attempt(platform, run, claim_trigger(platform, trigger, "one"), "boom")
    assert (trigger.state, trigger.attempt) == ("failed", 3)
    with pytest.raises(TriggerFailed, match="modyn-dagster pipeline resume p"):
        require_running(platform, waiting)
    with pytest.raises(RunError, match="failed: boom"):
        claim_trigger(platform, trigger, "two")
    reopened = resume_run(platform, waiting).trigger
    assert reopened is not None
    assert (reopened.state, reopened.attempt) == ("pending", 4)
    for _ in range(3):
        _, reopened = give_up_attempt(platform, run, claim_trigger(platform, reopened, "x"), "again")
    assert reopened.state == "failed"


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("pipeline p", "training.model.config", {}, "linear refused it: ValueError: no"),
        CorruptFile("7.arrow", "checksum a", "b"),
        TypeError("forward() takes 1 argument"),
        caused_by(TrainingError("the loss failed"), TypeError("unsupported operand")),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_permanent_error_fails_at_once_and_after_the_fix_all_attempts_are_granted(world, error):
    platform, run, trigger = world
    with pytest.raises(type(error)), working_attempt(claim_context(platform, trigger, "one")):
        raise error
    failed = reread(platform, trigger)
    assert (failed.state, failed.attempt, failed.error) == ("failed", 1, f"{type(error).__name__}: {error}")
    with platform.transaction() as conn:
        waiting = runs.get_run(conn, run.id)
    with pytest.raises(TriggerFailed, match="failed at attempt 1"):
        require_running(platform, waiting)
    reopened = resume_run(platform, waiting).trigger
    for _ in range(3):
        assert reopened is not None
        assert reopened.state == "pending"
        _, reopened = give_up_attempt(platform, run, claim_trigger(platform, reopened, "x"), "its process vanished")
    assert reopened is not None
    assert (reopened.state, reopened.attempt) == ("failed", 6)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOEXEC, "exec format error"),
        caused_by(ConfigError("pipeline p", "training.model.config", {}, "it refused"), FileNotFoundError("vocabulary.txt")),
        caused_by(StillFailing(3600, "7.arrow: cannot be written"), OSError(errno.ENOSPC, "no space left on device")),
        MemoryError(),
        NonFiniteLoss(3, float("nan"), [1], {}),
        RuntimeError("of user code"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_that_is_neither_transient_nor_permanent_costs_one_attempt(world, error):
    platform, _, trigger = world
    for attempt in (2, 3):
        with pytest.raises(type(error)), working_attempt(claim_context(platform, trigger, "one")):
            raise error
        trigger = reread(platform, trigger)
        assert (trigger.state, trigger.attempt) == ("pending", attempt)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "no space left on device"),
        caused_by(WriteFailed("7.arrow", "read-only file system"), OSError(errno.EROFS, "read-only file system")),
        caused_by(ConfigError("pipeline p", "training.model.config", {}, "it refused"), OSError(errno.EMFILE, "too many files")),
        caused_by(CorruptFile("7.arrow", "a file that can be read", "an error"), OSError(errno.EIO, "input/output error")),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_transient_error_costs_no_attempt_and_what_was_claimed_can_be_given_back(world, error):
    platform, run, trigger = world
    for _ in range(5):
        with pytest.raises(type(error)), working_attempt(claim_context(platform, trigger, "one")):
            raise error
    release_attempt(platform, run, "another", "it holds nothing")
    assert reread(platform, trigger).state == "training"
    release_attempt(platform, run, "one", "waits for the disk")
    released = reread(platform, trigger)
    assert (released.state, released.attempt, released.dagster_run_id) == ("pending", 1, None)
    assert released.error == "waits for the disk"
    assert claim_trigger(platform, released, "two").state == "training"


def test_with_continue_a_failed_trigger_stops_nothing(engine, home):
    spec = pipeline_spec(on_failure="continue", max_attempts=1)
    platform = platform_on(engine, home, spec)
    run, trigger = begin(platform, spec)
    run, failed = give_up_attempt(platform, run, claim_trigger(platform, trigger, "one"), "boom")
    assert (run.state, failed.state) == ("active", "failed")
    with pytest.raises(RunError, match="nothing to resume"):
        resume_run(platform, run)


def test_what_user_code_raises_gives_the_attempt_up_and_a_lost_catalog_does_not(world):
    platform, run, trigger = world
    with pytest.raises(ZeroDivisionError), working_attempt(claim_context(platform, trigger, "one")):
        raise ZeroDivisionError("in the model")
    now = reread(platform, trigger)
    assert (now.attempt, now.error) == (2, "ZeroDivisionError: in the model")
    with pytest.raises(StaleRun), working_attempt(claim_context(platform, now, "two")):
        raise StaleRun(run.title)
    assert reread(platform, trigger).state == "training"


def test_a_run_that_was_moved_since_it_was_read_cannot_be_moved(world):
    platform, run, _ = world
    with platform.transaction() as conn:
        moved = runs.move_run(conn, run, cursor=5)
    assert (moved.cursor, moved.epoch) == (5, run.epoch + 1)
    with pytest.raises(StaleRun, match="replay run 1 of p"), platform.transaction() as conn:
        runs.move_run(conn, run, cursor=7)


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(steps=st.lists(st.sampled_from(["claim a", "claim b", "give up", "finish"]), max_size=12))
def test_at_most_one_attempt_ever_finishes_a_trigger(world, steps):
    platform, run, _ = world
    with platform.transaction() as conn:
        number = len(triggers.list_triggers(conn, run.id))
        trigger = triggers.insert_trigger(conn, run.id, key=100 + number, point=100 + number, reason="x")
    held, finished = [], 0
    for step in steps:
        try:
            if step.startswith("claim"):
                held.append(claim_trigger(platform, reread(platform, trigger), step))
            elif step == "give up" and held:
                with platform.transaction() as conn:
                    triggers.raise_attempt(conn, held[-1], "lost")
            elif step == "finish" and held:
                for claim in held:
                    finished += _finishes(platform, claim)
        except (LostClaim, RunError):
            continue
    assert finished <= 1


def _finishes(platform: Platform, claim: triggers.TriggerRow) -> bool:
    try:
        with platform.transaction() as conn:
            triggers.hold(conn, claim)
            triggers.finish(conn, claim, "skipped")
    except LostClaim:
        return False
    return True
