"""Retention of models: by age, rank and alias. Models in use, and bases of models that stay, never go."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from statistics import fmean
from typing import TYPE_CHECKING, Final

import sqlalchemy as sa

from modyn_dagster.catalog.results.evaluations import list_evaluations
from modyn_dagster.catalog.results.models import ModelUse, lock_model_removals, mark_models, model_uses
from modyn_dagster.catalog.runs import list_runs
from modyn_dagster.errors import TrackingError, UnknownModel
from modyn_dagster.pipeline.operate.models_in_use import gate_models, models_in_use
from modyn_dagster.pipeline.operate.store_audit import stores_of_project
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.spec.base import seconds_of
from modyn_dagster.spec.operation import ModelRetention
from modyn_dagster.spec.pipeline import PipelineSpec
from modyn_dagster.spec.tasks.metrics import lower_is_better

if TYPE_CHECKING:
    from modyn_dagster.model_store import ModelId

#: Models of a pipeline that have one of some aliases in MLflow; ``TrackingError`` where it does not answer.
AliasedModels = Callable[[str, Sequence[str]], Collection["ModelId"]]


def no_aliases(pipeline: str, aliases: Sequence[str]) -> frozenset["ModelId"]:
    """Refuse to name models by their aliases: nothing is tracked in MLflow."""
    raise TrackingError("no address", f"tracking is off, and retention of {pipeline} asks for the aliases {', '.join(aliases)}")


@dataclass(frozen=True, slots=True)
class RemovedModels:
    """Models that retention removed from their stores.

    Attributes:
        n_models: their number.
        n_bytes: bytes of their files.
        unanswered: pipelines whose models all stay, because MLflow did not name those with an alias.
    """

    n_models: int = 0
    n_bytes: int = 0
    unanswered: tuple[str, ...] = ()


NO_MODELS: Final = RemovedModels()


def retain_models(platform: Platform, aliased: AliasedModels, now: datetime | None = None) -> RemovedModels:
    """Remove the models that ``retention.models`` of their pipelines does not keep; a second call removes nothing more.

    Rows are marked first and models removed afterwards, dependents before their bases: after a kill at any point the next call
    removes the rest, and no model that stays has lost its base. A model that several runs trained goes once none keeps it.
    """
    specs = {name: spec for name, spec in platform.project.pipelines.items() if spec.retention.models is not None}
    if not specs:
        return NO_MODELS
    with_alias, unanswered = _aliased(specs, aliased)
    in_use = models_in_use(platform)
    with platform.transaction() as conn:
        uses = model_uses(conn)
        # A run that can go on starts from its newest model, or takes it as the base of the next one.
        going_on = [run for run in list_runs(conn) if run.state != "ended"]
        kept = {*in_use, *(run.previous_model for run in going_on), *with_alias}
        # And the gate of such a run goes on with its champion and candidates, and may roll back.
        kept |= {model for run in going_on for model, _ in gate_models(conn, run)}
        free = specs.keys() - unanswered
        governed = [use for use in uses if use.pipeline in free]
        kept |= {use.hash for use in uses if use.removed_at is None and use.pipeline not in free}
        kept |= _kept_by_rules(conn, specs, governed, now or datetime.now(UTC))
    bases = _bases(platform, {use.hash for use in governed} - kept)
    kept |= bases
    going = {use.hash: use for use in governed if use.hash not in kept}
    rows = [use.trigger_id for use in governed if use.hash in going and use.removed_at is None]
    with platform.transaction() as conn:
        mark_models(conn, rows, removed=True)
    with platform.transaction() as conn:
        lock_model_removals(conn)
        # Trained again since: the row of its new trigger names it.
        named = {use.hash for use in model_uses(conn) if use.removed_at is None} & going.keys()
        n_models, n_bytes, staying = _delete(platform, going.keys() - named)
    staying |= named
    with platform.transaction() as conn:
        # These became bases of new models after they were marked, in this call or in one that was killed.
        marked = [use for use in governed if use.removed_at is not None or use.hash in going]
        mark_models(conn, [use.trigger_id for use in marked if use.hash in staying | bases], removed=False)
    return RemovedModels(n_models, n_bytes, tuple(sorted(unanswered)))


def _aliased(specs: Mapping[str, PipelineSpec], aliased: AliasedModels) -> tuple[set["ModelId"], set[str]]:
    """Models with an alias that their pipeline's spec names, and the pipelines for which MLflow did not answer."""
    models, unanswered = set[str](), set[str]()
    for name, spec in specs.items():
        rules = spec.retention.models
        if rules is None or not rules.aliases:
            continue
        try:
            models.update(aliased(name, rules.aliases))
        except TrackingError:
            unanswered.add(name)
    return models, unanswered


def _kept_by_rules(
    conn: sa.Connection, specs: Mapping[str, PipelineSpec], uses: Iterable[ModelUse], now: datetime
) -> set["ModelId"]:
    by_run: dict[int, list[ModelUse]] = defaultdict(list)
    for use in uses:
        by_run[use.run_id].append(use)
    kept = set[str]()
    for run_id, models in by_run.items():
        spec = specs[models[0].pipeline]
        rules = spec.retention.models or ModelRetention.model_construct()
        present = [use for use in models if use.removed_at is None]
        if rules.newest is not None:
            kept.update(use.hash for use in present[-rules.newest :])
        if rules.younger_than is not None:
            limit = now - timedelta(seconds=seconds_of(rules.younger_than))
            kept.update(use.hash for use in present if use.created_at > limit)
        if rules.best is not None:
            kept.update(use.hash for use in _best(conn, run_id, present, spec.evaluation.score_metric, rules.best))
    return kept


def _best(conn: sa.Connection, run_id: int, models: Sequence[ModelUse], metric: str, n: int) -> list[ModelUse]:
    """The models with the best mean scores, over intervals that they did not see in training if there are any.

    Of equal means the newer model is better. Models without a score are not among the best.
    """
    unseen, seen = defaultdict[int, list[float]](list), defaultdict[int, list[float]](list)
    for cell in list_evaluations(conn, run_id):
        if cell.metric == metric and cell.value is not None:
            (seen if cell.seen_in_training else unseen)[cell.ordinal].append(cell.value)
    sign = 1 if lower_is_better(metric) else -1
    means = {use.ordinal: sign * fmean(unseen[use.ordinal] or seen[use.ordinal]) for use in models if _any(unseen, seen, use)}
    scored = [use for use in models if use.ordinal in means]
    return sorted(scored, key=lambda use: (means[use.ordinal], -use.ordinal))[:n]


def _any(unseen: Mapping[int, list[float]], seen: Mapping[int, list[float]], use: ModelUse) -> bool:
    return bool(unseen.get(use.ordinal) or seen.get(use.ordinal))


def _bases(platform: Platform, going: set["ModelId"]) -> set["ModelId"]:
    """Models that the other models in the stores of the project need."""
    stores = stores_of_project(platform) if going else []
    return {need for store in stores for need in store.needs(set(store.list()) - going)}


def _delete(platform: Platform, going: Collection["ModelId"]) -> tuple[int, int, set["ModelId"]]:
    """Delete models from their stores; returns number and bytes, and the models that stay."""
    n_models, n_bytes, staying = 0, 0, set[str]()
    for store in stores_of_project(platform) if going else ():
        sizes: dict[str, int] = {}
        for model in going:
            with suppress(UnknownModel):
                sizes[model] = store.size(model)
        left = set(store.delete_unneeded(sizes))
        staying |= left
        n_models += len(sizes) - len(left)
        n_bytes += sum(n for model, n in sizes.items() if model not in left)
    return n_models, n_bytes, staying
