"""Retention of models: rules of age, rank and alias keep models; models in use and bases never go."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from modyn_dagster.catalog.results.evaluations import evaluation
from modyn_dagster.catalog.results.models import ModelUse, mark_models, model_uses
from modyn_dagster.catalog.triggers import trigger
from modyn_dagster.errors import ConfigError, TrackingError
from modyn_dagster.pipeline.context import trained_contexts
from modyn_dagster.pipeline.operate import model_retention
from modyn_dagster.pipeline.operate.model_retention import no_aliases, retain_models
from modyn_dagster.pipeline.operate.retention import apply_retention
from modyn_dagster.pipeline.stages.evaluation.pending_evaluations import scan_pending
from modyn_dagster.pipeline.stages.evaluation.stage import evaluate_model
from modyn_dagster.pipeline.stages.model import stage
from modyn_dagster.spec.load import parse_spec, spec_hash
from modyn_dagster.spec.pipeline import PipelineSpec
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, Content, amount, write_pipeline

GSS = {"selection": {"window": "all", "strategy": {"kind": "gss", "n": 8}}}
PLAIN = {"strategy": "snapshot"}
DAYS = 5


def world_with(world_of: Callable[..., World], **models: object) -> World:
    """Five trained models, which need no others, and these rules."""
    world = world_of(amount(every=40, model_store=PLAIN))
    world.deliver(range(DAYS))
    world.live_until_idle("by_amount")
    govern(world, **models)
    return world


def govern(world: World, **models: object) -> None:
    write_pipeline(world.folder, amount(every=40, model_store=PLAIN, retention={"models": models}))
    world.reload()


def uses(world: World) -> list[ModelUse]:
    with world.platform.transaction() as conn:
        return model_uses(conn)


def present(world: World) -> list[int]:
    """Ordinals of the models that are stored, after a look that the rows say the same."""
    stored = set(world.platform.model_store.list())
    found = [use.ordinal for use in uses(world) if use.hash in stored]
    assert found == [use.ordinal for use in uses(world) if use.removed_at is None]
    return found


def let_win(world: World, ordinal: int) -> None:
    """Make one model the best, and so the champion of those up to it."""
    with world.platform.transaction() as conn:
        of_one = evaluation.c.trigger_id.in_(sa.select(trigger.c.id).where(trigger.c.ordinal == ordinal))
        conn.execute(sa.update(evaluation).where(evaluation.c.value.is_not(None)).values(value=0.5))
        conn.execute(sa.update(evaluation).where(of_one, evaluation.c.value.is_not(None)).values(value=0.9))


@pytest.mark.soak("replays")
def test_the_newest_and_the_champion_stay_and_the_others_keep_their_scores_and_are_not_evaluated_again(world_of):
    world = world_with(world_of, newest=2)
    let_win(world, 1)
    before = world.outcome(world.run("by_amount", "live"))
    removed = apply_retention(world.platform).models
    assert (removed.n_models, removed.unanswered) == (2, ())
    assert removed.n_bytes > 0
    assert present(world) == [1, 3, 4]
    assert apply_retention(world.platform).models.n_models == 0
    assert world.outcome(world.run("by_amount", "live")) == before
    world.deliver([DAYS])
    world.live_until_idle("by_amount")
    run = world.run("by_amount", "live")
    assert scan_pending(world.platform, run).due == []
    first = trained_contexts(world.platform, run, world.platform.view(DATASET))[0]
    cells, is_new = evaluate_model(first, finished=False)
    assert not is_new
    assert any(cell.ordinal == 0 and cell.value is not None for cell in cells)


def test_the_best_stay_by_their_mean_score(world_of):
    world = world_with(world_of, best=1)
    let_win(world, 0)
    with world.platform.transaction() as conn:
        conn.execute(
            sa.delete(evaluation).where(evaluation.c.trigger_id.in_(sa.select(trigger.c.id).where(trigger.c.ordinal == 4)))
        )
    assert retain_models(world.platform, no_aliases).n_models == 3
    assert present(world) == [0, 4]


@pytest.mark.soak("replays")
def test_young_models_and_those_with_a_named_alias_stay_and_without_an_answer_all_do(world_of):
    world = world_with(world_of, aliases=["rollback"], younger_than="1d")
    let_win(world, 4)
    assert retain_models(world.platform, lambda *_: []).n_models == 0
    later = datetime.now(UTC) + timedelta(days=2)
    chosen = uses(world)[2].hash

    def down(pipeline: str, aliases: object) -> frozenset[str]:
        raise TrackingError("MLflow", "is down")

    for unanswered in (down, no_aliases):
        removed = retain_models(world.platform, unanswered, later)
        assert (removed.n_models, removed.unanswered) == (0, ("by_amount",))

    def answering(pipeline: str, aliases: Sequence[str]) -> list[str]:
        assert (pipeline, aliases) == ("by_amount", ["rollback"])
        return [chosen]

    assert retain_models(world.platform, answering, later).n_models == DAYS - 2
    assert present(world) == [2, 4]


@pytest.mark.soak("replays")
def test_bases_of_models_that_stay_never_go_even_if_a_killed_call_had_marked_them(world_of):
    world = world_with(world_of, newest=1)
    let_win(world, 4)
    store = world.platform.model_store
    second = uses(world)[1].hash
    state = store.load(second)
    changed = next(iter(state))
    mine = store.save(state | {changed: state[changed] + 1}, base=second, strategy="changed_layers")
    assert store.info(mine).needs == (second,)
    with world.platform.transaction() as conn:
        mark_models(conn, [use.trigger_id for use in uses(world)[:2]], removed=True)
    assert retain_models(world.platform, no_aliases).n_models == DAYS - 2
    assert present(world) == [1, 4]
    assert store.verify() == []
    store.delete(mine)
    assert retain_models(world.platform, no_aliases).n_models == 1
    assert present(world) == [4]


@pytest.mark.soak("replays")
def test_a_model_that_an_ungoverned_pipeline_trained_too_stays(world_of):
    world = world_with(world_of, newest=1)
    let_win(world, 4)
    content = amount("another", every=40, model_store=PLAIN)
    write_pipeline(world.folder, content)
    world.reload()
    world.replay("another", world.keys()[:2])
    by_pipeline = {name: {use.hash for use in uses(world) if use.pipeline == name} for name in ("another", "by_amount")}
    assert 1 <= len(by_pipeline["another"] & by_pipeline["by_amount"]) == len(by_pipeline["another"])
    assert retain_models(world.platform, no_aliases).n_models == DAYS - 1 - len(by_pipeline["another"])


def test_rules_for_models_begin_no_new_run():
    blocks: tuple[Content, ...] = ({}, {"retention": {"models": {"newest": 3}}})
    plain, governed = (parse_spec(amount(**fields), PipelineSpec, source="test") for fields in blocks)
    assert spec_hash(plain) == spec_hash(governed)


@pytest.mark.parametrize(
    ("retention", "fields", "rule"),
    [
        ({"models": {}}, {}, "give at least one of newest, best, younger_than and aliases"),
        ({"models": {"newest": 0}}, {}, "greater than 0"),
        ({"models": {"younger_than": "soon"}}, {}, "must be a whole number and a unit"),
        ({"models": {"aliases": ["a b"]}}, {}, "aliases"),
        ({"models": {"newest": 1}}, GSS, "retention.models must be null"),
    ],
)
def test_impossible_rules_are_refused(retention, fields, rule):
    with pytest.raises(ConfigError, match=rule):
        parse_spec(amount(retention=retention, **fields), PipelineSpec, source="test")


@pytest.mark.soak("replays")
@pytest.mark.parametrize("step", ["save_optimizers", "require_present"])
def test_a_model_trained_again_while_retention_deletes_it_is_there_afterwards(world_of, monkeypatch, step):
    """Retention ends between the save of the equal model and the commit of its row, before or within its transaction."""
    world = world_with(world_of, newest=1)
    let_win(world, DAYS - 1)
    oldest = uses(world)[0].hash
    go_on, first = getattr(stage, step), iter([True])

    def retention_first(*arguments):
        if next(first, False):
            retain_models(world.platform, no_aliases)
            assert oldest not in world.platform.model_store.list()
        go_on(*arguments)

    monkeypatch.setattr(stage, step, retention_first)
    world.replay("by_amount")
    of_replay = [use for use in uses(world) if use.mode == "replay"]
    assert [use.removed_at for use in of_replay] == [None] * DAYS
    assert {use.hash for use in of_replay} <= set(world.platform.model_store.list())
    assert {trigger.attempt for trigger in world.triggers(world.run("by_amount", "replay").id)} == {1}


@pytest.mark.soak("replays")
def test_a_model_whose_new_row_is_committed_while_retention_runs_stays(world_of, monkeypatch):
    """The equal model is committed after retention chose the models, and before it deletes them."""
    world = world_with(world_of, newest=1)
    mark = mark_models
    replays = iter([True])

    def replay_afterwards(conn, rows, *, removed):
        mark(conn, rows, removed=removed)
        conn.commit()
        if next(replays, False):
            world.replay("by_amount")

    monkeypatch.setattr(model_retention, "mark_models", replay_afterwards)
    retain_models(world.platform, no_aliases)
    assert {use.mode for use in uses(world)} == {"live", "replay"}
    assert len(present(world)) == len(uses(world))
