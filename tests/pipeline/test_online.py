"""Online strategies in pipelines: the paper's samplers batch by batch, state that survives, and what a deletion does to it."""

import json
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from modyn_dagster.assets.metadata.stages import selection_metadata
from modyn_dagster.catalog.results.training_sets import TrainingSetRow, find_training_set, list_fills, training_set
from modyn_dagster.errors import ConfigError, CorruptFile, ImportPathError
from modyn_dagster.keys import key_of
from modyn_dagster.pipeline.context import context_of
from modyn_dagster.pipeline.operate.retention import apply_retention
from modyn_dagster.pipeline.stages.training_set.stage import open_training_set, select_training_set
from modyn_dagster.pipeline.stages.trigger_stages import finish_live_run
from modyn_dagster.reporting.mlflow.series import fill_series
from modyn_dagster.reproducibility.randomness import seed_for
from modyn_dagster.selection.time_biased import RTBS, SlidingWindow, decay_for
from modyn_dagster.storage import StagedFile
from modyn_dagster.values.digest import checksum_of
from tests.pipeline.measuring import delete
from tests.pipeline.world import World
from tests.projects.tiny import ROWS, USER_CODE, amount, timed, write_pipeline
from tests.variants import represented

DECAY = {"keep": 0.5, "after": "1d"}
STRATEGIES: dict[str, dict[str, Any]] = {
    "rtbs": {"kind": "rtbs", "n": 60, "decay": DECAY},
    "rtbs_reset": {"kind": "rtbs", "n": 60, "decay": DECAY, "reset": "after_trigger"},
    "rtbs_unbiased": {"kind": "rtbs", "n": 60, "decay": DECAY, "weights": "unbiased"},
    "rtbs_shards": {"kind": "rtbs", "n": 60, "decay": DECAY, "shards": 3},
    "ttbs_shards": {"kind": "ttbs", "n": 50, "decay": DECAY, "mean_batch_size": 40, "shards": 3},
    "ttbs": {"kind": "ttbs", "n": 50, "decay": DECAY, "mean_batch_size": 40},
    "btbs": {"kind": "btbs", "decay": {"rate": 0.3, "per": "1d"}},
    "uniform": {"kind": "uniform_reservoir", "n": 50},
    "uniform_reset": {"kind": "uniform_reservoir", "n": 50, "reset": "after_trigger"},
    "last": {"kind": "sliding_window", "n": 70},
    "days": {"kind": "sliding_window", "span": "2d"},
    "days_reset": {"kind": "sliding_window", "span": "9d", "reset": "after_trigger"},
}


def online(name: str, strategy: dict[str, Any], every: int = 70, **fields):
    selection = {"strategy": strategy, "partition_size": 16, **fields.pop("selection", {})}
    return amount(name, every=every, selection=selection, **fields)


def rows_of(world: World, name: str, mode: str = "replay") -> list[TrainingSetRow]:
    with world.platform.transaction() as conn:
        found = [find_training_set(conn, trigger.id) for trigger in world.triggers(world.run(name, mode).id)]
    return [row for row in found if row is not None]


def keys_of(world: World, name: str, mode: str = "replay") -> list[list[int]]:
    triggers = world.triggers(world.run(name, mode).id)
    contexts = [context_of(world.platform, name, trigger.partition_key) for trigger in triggers]
    rows = rows_of(world, name, mode)
    return [open_training_set(context, row).keys().tolist() for context, row in zip(contexts, rows, strict=True)]


@pytest.fixture(scope="module")
def expected() -> list[list[int]]:
    """R-TBS over the tiny stream by hand: batches of a day, cut where triggers fire, in seconds of sample time."""
    sampler = RTBS(60, decay_for(86_400, 1, 0.5), seed_for(7, "online", -1))
    sets = []
    for day in range(6):
        keys = np.array([key_of(day, i) for i in range(ROWS)], np.uint64)
        cuts = [n - day * ROWS for n in range(70, 6 * ROWS + 1, 70) if day * ROWS < n <= (day + 1) * ROWS]
        for number, part in enumerate(np.split(keys, cuts)):
            if len(part):
                sampler.update(part, elapsed=86_400.0 if number == 0 else 0.0)
            if number < len(cuts):
                sets.append(sorted(sampler.sample().tolist()))
    return sets


@pytest.mark.soak("replays")
def test_a_pipeline_feeds_r_tbs_batch_by_batch_cut_at_triggers_in_sample_time(world_of, expected):
    world = world_of(online("rtbs", STRATEGIES["rtbs"]))
    world.deliver(range(6))
    world.replay("rtbs")
    assert keys_of(world, "rtbs") == expected


@represented(
    "name", ["rtbs_reset", "rtbs_shards", "ttbs_shards", "ttbs", "uniform_reset", "days_reset"], "replays", "rtbs_shards"
)
def test_live_equals_replay_however_the_batches_arrive(world_of, name):
    world = world_of(online(name, STRATEGIES[name]))
    for days in ([0], [1, 2, 3], [], [4], [5]):
        world.deliver(days)
        world.live_until_idle(name)
    world.deliver([2], hours_late=1)
    world.live_until_idle(name)
    list(finish_live_run(world.platform, world.run(name, "live")))
    world.replay(name)
    live, replayed = (world.outcome(world.run(name, mode)) for mode in ("live", "replay"))
    assert len(live["models"]) >= 3
    assert live == replayed
    states = [[row.details["state"]["checksum"] for row in rows_of(world, name, mode)] for mode in ("live", "replay")]
    assert states[0] == states[1]


@pytest.mark.soak("replays")
def test_the_state_is_a_file_whose_loss_changes_nothing(world_of):
    kept, lost = (online(name, STRATEGIES["rtbs"]) for name in ("kept", "lost"))
    world = world_of(kept, lost)
    for day in range(6):
        world.deliver([day])
        for name in ("kept", "lost"):
            world.live_until_idle(name)
        for row in rows_of(world, "lost", "live"):
            path = world.platform.home / row.details["state"]["path"]
            if day % 2:
                path.unlink(missing_ok=True)
            elif path.is_file():
                path.write_bytes(path.read_bytes()[:-1])
    assert keys_of(world, "kept", "live") == keys_of(world, "lost", "live")
    row = rows_of(world, "kept", "live")[-1]
    path = world.platform.home / row.details["state"]["path"]
    assert checksum_of(path) == row.details["state"]["checksum"]
    assert json.loads(path.read_bytes())["until"] == row.until


def test_a_state_with_a_right_checksum_that_nobody_wrote_is_named(world_of):
    world = world_of(online("rtbs", STRATEGIES["rtbs"]))
    world.deliver(range(3))
    world.live_until_idle("rtbs")
    row = rows_of(world, "rtbs", "live")[-1]
    path = world.platform.home / row.details["state"]["path"]
    path.write_text(json.dumps({"strategy": row.details["state"]["strategy"], "sampler": {"time": "now"}}))
    details = {**row.details, "state": {**row.details["state"], "checksum": checksum_of(path)}}
    with world.platform.transaction() as conn:
        conn.execute(sa.update(training_set).where(training_set.c.trigger_id == row.trigger_id).values(details=details))
    world.deliver([3])
    trigger = world.tick("rtbs").train
    assert trigger is not None
    with pytest.raises(CorruptFile, match=f"{path.name}: expected the state of an online strategy"):
        world.train("rtbs", trigger)


@pytest.mark.parametrize("published", [0, 1], ids=["before the state", "between state and set"])
def test_selecting_twice_and_after_a_kill_gives_the_same_files(world_of, monkeypatch, published):
    world = world_of(online("rtbs", STRATEGIES["rtbs"]))
    world.deliver(range(4))
    first = world.tick("rtbs").train
    assert first is not None
    world.train("rtbs", first)
    trigger = world.tick("rtbs").train
    assert trigger is not None

    calls, publish = iter(range(2)), StagedFile.publish

    def killed(file: StagedFile) -> None:
        if next(calls) == published:
            raise KeyboardInterrupt
        publish(file)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(StagedFile, "publish", killed)
        world.train("rtbs", trigger)
    world.train("rtbs", trigger)
    world.live_until_idle("rtbs")
    world.replay("rtbs")
    assert keys_of(world, "rtbs", "live") == keys_of(world, "rtbs")
    for done in world.triggers(world.run("rtbs", "live").id, "trained"):
        context = context_of(world.platform, "rtbs", done.partition_key)
        assert select_training_set(context).n_samples > 0


@pytest.mark.soak("replays")
def test_deleted_samples_leave_the_state_and_change_no_other_choice(world_of):
    names = ("rtbs", "days")
    world = world_of(*(online(name, STRATEGIES[name]) for name in names))
    world.deliver(range(6))
    for name in names:
        world.replay(name, name="whole")
    untouched = {name: keys_of(world, name) for name in names}
    for name in names:
        world.replay(name, world.keys()[:3], name="deleted midway")
    gone = [key_of(day, i) for day in range(6) for i in range(0, ROWS, 3)]
    delete(world, gone)
    for name in names:
        world.replay(name, world.keys()[3:], name="deleted midway")
        found = keys_of(world, name)
        assert found[0] == untouched[name][0]
        assert found[2:] == [sorted(set(keys) - set(gone)) for keys in untouched[name][2:]]
        state = (world.platform.home / rows_of(world, name)[-1].details["state"]["path"]).read_text()
        assert json.loads(state)["n_seen"] == 210
    world.replay("rtbs", name="deleted before")
    assert keys_of(world, "rtbs")[2:] == [sorted(set(keys) - set(gone)) for keys in untouched["rtbs"][2:]]


@pytest.mark.soak("replays")
def test_reset_after_a_trained_trigger_forgets_what_was_before(world_of):
    world = world_of(
        online("reset", {"kind": "sliding_window", "n": 1000, "reset": "after_trigger"}),
        online("never", {"kind": "sliding_window", "n": 1000}),
    )
    world.deliver(range(5))
    for name in ("reset", "never"):
        world.replay(name)
    reset, never = keys_of(world, "reset"), keys_of(world, "never")
    assert [len(keys) for keys in reset] == [70, 70]
    assert [len(keys) for keys in never] == [70, 140]
    assert [*reset[0], *reset[1]] == never[-1]


def test_a_sliding_window_holds_what_slides_and_stands_for_itself(world_of):
    world = world_of(
        online("last", {"kind": "sliding_window", "n": 50}), online("days", {"kind": "sliding_window", "span": "2d"})
    )
    world.deliver(range(6))
    for name in ("last", "days"):
        world.replay(name)
    window = SlidingWindow(50)
    window.update(np.array([key_of(day, i) for day in range(6) for i in range(ROWS)], np.uint64)[:210])
    assert keys_of(world, "last")[-1] == window.sample().tolist()
    last = rows_of(world, "last")[-1]
    assert (last.n_pool, last.n_samples, last.after) == (50, 50, int(window.sample()[0]) - 1)
    # The batch of day 5 is cut at its tenth sample; at its time the batch of day 4 is a day old and that of day 3 is out.
    assert keys_of(world, "days")[-1] == [key_of(4, i) for i in range(ROWS)] + [key_of(5, i) for i in range(10)]


@pytest.mark.soak("replays")
def test_too_little_fresh_data_skips_the_trigger_and_keeps_the_model(world_of):
    strategy = {"kind": "rtbs", "n": 200, "decay": {"keep": 0.5, "after": "4d"}, "min_fill": 0.5}
    world = world_of(online("fresh", strategy))
    world.deliver(range(6))
    world.live_until_idle("fresh")
    run = world.run("fresh", "live")
    triggers = world.triggers(run.id)
    assert [trigger.state for trigger in triggers] == ["skipped", "trained", "trained"]
    assert "below min_fill 0.5" in str(triggers[0].error)
    first, second, _ = rows_of(world, "fresh", "live")
    assert first.n_samples == 0
    assert first.details["fill"] < 0.5 < second.details["fill"]
    assert second.details["fills"][-1][1] == second.details["fill"]
    contexts = [context_of(world.platform, "fresh", trigger.partition_key) for trigger in triggers]
    shown = [selection_metadata(context, row) for context, row in zip(contexts[:2], (first, second), strict=True)]
    assert [each["fill"] for each in shown] == [pytest.approx(row.details["fill"], rel=1e-3) for row in (first, second)]
    assert shown[0]["skipped"] == triggers[0].error
    assert "image/svg+xml" in shown[1]["fill_chart"].value
    with world.platform.transaction() as conn:
        fills = list_fills(conn, run.id)
    assert [point.ordinal for point in fills] == sorted(point.ordinal for point in fills)
    assert {point.ordinal for point in fills if point.skipped} == {0}
    series = fill_series(fills)["selection/fill"]
    assert [point.value for point in series] == [point.fill for point in fills]
    world.replay("fresh")
    assert world.outcome(world.run("fresh", "replay"))["models"] == world.outcome(run)["models"]


def test_unbiased_weights_are_one_over_the_chance(world_of):
    world = world_of(online("unbiased", {"kind": "btbs", "decay": {"rate": 0.5, "per": "1d"}, "weights": "unbiased"}))
    world.deliver(range(6))
    world.replay("unbiased")
    trigger = world.triggers(world.run("unbiased", "replay").id)[-1]
    found = open_training_set(context_of(world.platform, "unbiased", trigger.partition_key), rows_of(world, "unbiased")[-1])
    days = (found.keys() >> np.uint64(32)).astype(int)
    np.testing.assert_allclose(found.weights(), np.exp(0.5 * (5 - days)), rtol=1e-6)


def test_limit_warm_up_and_schedule_hold_for_online_strategies_too(world_of):
    stages = [{"from_trigger": 2, "strategy": {"kind": "uniform_reservoir", "n": 30}}]
    selection = {"limit": 40, "warmup_triggers": 1, "schedule": stages}
    world = world_of(online("mixed", {"kind": "rtbs", "n": 60, "decay": DECAY}, selection=selection))
    world.deliver(range(6))
    world.replay("mixed")
    rows = rows_of(world, "mixed")
    assert [row.n_samples for row in rows] == [40, 40, 30]
    assert ["state" in row.details for row in rows] == [False, True, True]
    assert rows[2].n_pool == 210
    with pytest.raises(ConfigError, match=r"window: strategies that follow the stream"):
        write_pipeline(world.folder, online("bad", STRATEGIES["last"], selection={"window": {"last_triggers": 2}}))
        world.reload()
        world.platform.project  # noqa: B018 - raises


def test_settings_that_contradict_each_other_are_found_before_a_run_starts(world_of):
    world = world_of(online("slow", {"kind": "ttbs", "n": 50, "decay": DECAY, "mean_batch_size": 10}))
    world.deliver(range(2))
    with pytest.raises(ConfigError, match=r"pipeline slow: selection\.strategy.*mean_batch_size"):
        world.replay("slow")


def test_an_expression_that_does_not_import_is_found_before_a_run_starts(world_of, monkeypatch):
    monkeypatch.syspath_prepend(USER_CODE)
    strategy = {"kind": "weighted", "expression": "tiny_selection:missing", "size": 5}
    world = world_of(online("weighed", strategy, selection={"backend": "postgres"}))
    world.deliver(range(1))
    with pytest.raises(ImportPathError, match=r"selection\.strategy\.expression"):
        world.replay("weighed")


def test_the_window_all_reaches_back_before_the_run_and_retention_takes_states_along(world_of):
    whole = online("whole", STRATEGIES["last"], selection={"window": "all"}, retention={"training_sets": 1})
    world = world_of(whole)
    world.deliver(range(6))
    world.replay("whole", world.keys()[3:])
    first, last = rows_of(world, "whole")[0], rows_of(world, "whole")[-1]
    assert first.n_samples == 70
    apply_retention(world.platform)
    there = [(world.platform.home / row.details["state"]["path"]).is_file() for row in rows_of(world, "whole")]
    assert there == [False] * (len(there) - 1) + [True]
    assert last.n_samples == 70


@pytest.mark.soak("replays")
def test_time_triggers_cut_before_the_sample_that_decided(world_of):
    block = timed("ticks", every="2d")
    block["selection"] = {"strategy": STRATEGIES["rtbs"]}
    world = world_of(block)
    for day in range(7):
        world.deliver([day])
        world.live_until_idle("ticks")
    list(finish_live_run(world.platform, world.run("ticks", "live")))
    world.replay("ticks")
    assert world.outcome(world.run("ticks", "live")) == world.outcome(world.run("ticks", "replay"))


@pytest.mark.parametrize("name", ["rtbs", "uniform"])
def test_chances_travel_with_the_set_and_are_certified(world_of, name):
    unbiased = STRATEGIES[name] | {"weights": "unbiased"}
    world = world_of(online("equal", STRATEGIES[name]), online("unbiased", unbiased, selection={"limit": 30}))
    world.deliver(range(6))
    for pipeline in ("equal", "unbiased"):
        stages = [event for event in world.replay(pipeline) if getattr(event, "stage", "") == "training_set"]
        assert len(stages) == 3
        for stage in stages:
            told = {check.name: check for check in stage.checks}
            assert {"keys_once", "weights_sum", "chances_sum"} < set(told)
            assert all(check.passed for check in told.values())
            assert ("sum" in told["chances_sum"].metadata) == (pipeline == "equal")
