"""Evidence of a gate: stored predictions, and the labels as of one batch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import median
from typing import Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.catalog.results.models import ModelRow, list_models
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.catalog.timings import prediction_timings
from modyn_dagster.catalog.triggers import list_triggers
from modyn_dagster.data.label_files import is_labelled
from modyn_dagster.data.split import CALIBRATE
from modyn_dagster.data.view import DatasetView
from modyn_dagster.errors import ModynError
from modyn_dagster.evaluation.predictions.forward import Predictions
from modyn_dagster.evaluation.promotion.evidence import Outcomes, Pairs
from modyn_dagster.keys import KeyArray, ordinal_of
from modyn_dagster.pipeline.context import TriggerContext
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.pipeline.promotion.predictions import GatePredictions
from modyn_dagster.pipeline.stages.evaluation.cells.plans import slice_values
from modyn_dagster.pipeline.stages.evaluation.training_data import evaluation_set
from modyn_dagster.spec.base import timedelta_of
from modyn_dagster.spec.pipeline import PipelineSpec

Mask = npt.NDArray[np.bool_]
_NONE: Final = np.empty(0, np.uint64)


@dataclass(frozen=True)
class RunModels:
    """Trained triggers of a run with their contexts, read once for the looks at many batches.

    Attributes:
        contexts: by the ordinal of the trigger; their view reaches to the last batch that is there.
        spec: of the run.
        load_problems: by the ids of the models that were tried, so that each is loaded once; None for one that loads.
    """

    platform: Platform
    run: RunRow
    spec: PipelineSpec
    view: DatasetView
    contexts: Mapping[int, TriggerContext]
    load_problems: dict[str, str | None] = field(default_factory=dict)

    @classmethod
    def read(cls, platform: Platform, run: RunRow, view: DatasetView) -> "RunModels":
        """Read the triggers and models of a run; ``view`` reaches as far as batches are there."""
        with platform.transaction() as conn:
            triggers, models = list_triggers(conn, run.id), list_models(conn, run.id)
        spec = platform.spec_of(run)
        with_model = {model.trigger_id for model in models}
        contexts = {
            trigger.ordinal: TriggerContext(platform, spec, view, run, trigger, triggers, models, None, None)
            for trigger in triggers
            if trigger.state == "trained" and trigger.id in with_model
        }
        return cls(platform, run, spec, view, contexts)

    def hash_of(self, trigger: int) -> str:
        """Id of the model of a trigger; empty where it has none."""
        context = self.contexts.get(trigger)
        return "" if context is None or context.model is None else context.model.hash

    def without(self, trigger: int) -> "RunModels":
        """Return the models without that of a trigger."""
        return replace(self, contexts={ordinal: each for ordinal, each in self.contexts.items() if ordinal != trigger})

    def with_model(self, model: ModelRow) -> "RunModels":
        """Return the models with another one of a trigger that has one."""
        context = self.contexts[model.ordinal]
        models = tuple(model if each.trigger_id == model.trigger_id else each for each in context.models)
        return replace(self, contexts={**self.contexts, model.ordinal: replace(context, models=models)})


class BatchEvidence:
    """Evidence after one batch, as ``evaluation.promotion.evidence.Evidence`` describes it."""

    def __init__(self, models: RunModels, predictions: GatePredictions, batch: int) -> None:
        self.batch = batch
        self._models, self._predictions = models, predictions
        self._view = models.view

    @cached_property
    def _here(self) -> DatasetView:
        return self._view.up_to(self.batch)

    @property
    def last_key(self) -> int:
        """Last key of the stream up to the batch."""
        return self._view.last_key_of(self.batch)

    @cached_property
    def time(self) -> int | None:
        """Stream time reached, microseconds since 1970."""
        reached = self._here.time_reached
        return None if reached is None else int(reached.astype("datetime64[us]").astype(np.int64))

    def models(self) -> Mapping[int, int]:
        """Keys of the triggers whose models are there, by ordinal."""
        passed = self._models.contexts.items()
        return {ordinal: each.trigger.key for ordinal, each in passed if ordinal_of(each.trigger.point) <= self.batch}

    def pairs(self, candidate: int, incumbent: int, after: int, begun: int, since: int) -> Pairs:
        """Pairs that entered a test after a batch and up to this one, in the order in which they entered."""
        ordinals = self._view.columns.ordinals
        batches = ordinals[slice(*np.searchsorted(ordinals, [since, self.batch], side="right"))].tolist()
        if not self._enters_late:
            return self._pairs(candidate, incumbent, [(self._arrived(candidate, after, since), self.batch)])
        entries = []
        before = self._eligible(candidate, after, max(since, begun))
        for batch in batches:
            now = self._eligible(candidate, after, batch)
            entries.append((np.setdiff1d(now, before, assume_unique=True), batch))
            before = np.union1d(before, now)
        return self._pairs(candidate, incumbent, entries)

    def coverage(self, candidate: int, after: int) -> float:
        """Share of the mature samples after a key that have a label."""
        if self._models.spec.promotion is None or self._models.spec.promotion.min_coverage == 0:
            return 1.0
        keys = self._candidates(candidate, after, self.batch)
        keys = keys[self._mature(keys, self.batch)]
        return 1.0 if len(keys) == 0 else float(np.mean(self._labelled(keys, self.batch)))

    def outcomes(self, model: int, begin: int, end: int) -> Outcomes | None:
        """Predictions of a model on the samples of an interval that it has not seen; None while it is open or immature."""
        start, stop = np.datetime64(begin, "us"), np.datetime64(end, "us")
        maturity = self._models.spec.evaluation.maturity
        wait = np.timedelta64(0, "us") if maturity is None else timedelta_of(maturity)
        reached = self._here.time_reached
        if reached is None or reached < stop + wait:
            return None
        context = self._models.contexts[model]
        columns = self._here.columns
        touched = columns.ordinals[(columns.first < stop) & (columns.last >= start)]
        touched = touched[touched >= ordinal_of(context.trigger.point)]
        if len(touched) == 0:
            empty = Predictions.empty("class", int(context.model.architecture["n_outputs"]) if context.model else 1)
            return Outcomes(empty.keys, empty.truth, empty.outputs, {})
        found = self._predictions.of(context, int(touched[0]), int(touched[-1]))
        seen = max(context.trigger.key, context.trigger.point)
        rows = np.flatnonzero((found.times >= start) & (found.times < stop) & (found.keys.astype(np.int64) > seen))
        found = found.take(rows)
        promotion = self._models.spec.promotion
        watched = promotion is not None and promotion.rollback is not None and promotion.rollback.guardrails
        slices = self._slices(context, found) if watched else {}
        return Outcomes(found.keys, self._truth(found, self.batch), found.outputs, slices)

    def n_bytes(self, model: int) -> int:
        """Bytes of a model's weights in memory."""
        from modyn_dagster.pipeline.weights import weights_of

        state = weights_of(self._models.platform, self._models.spec, self._models.hash_of(model))
        return sum(int(tensor.nbytes) for tensor in state.values())

    def latency(self, model: int) -> float | None:
        """Median of the measured seconds per 1,000 predicted samples."""
        with self._models.platform.transaction() as conn:
            measured = prediction_timings(conn, self._models.contexts[model].trigger.id)
        return median(1000 * seconds / n for seconds, n in measured) if measured else None

    def load_problem(self, model: int) -> str | None:
        """Sentence that says why a model cannot be loaded and verified; None where it can."""
        from modyn_dagster.pipeline.weights import weights_of

        context = self._models.contexts.get(model)
        if context is None or context.model is None:
            return f"trigger {model} has no model"
        if context.model.removed_at is not None:
            return f"model {context.model.hash[:12]} of trigger {model} was removed by retention"
        tried, model_hash = self._models.load_problems, context.model.hash
        if model_hash not in tried:
            try:
                weights_of(self._models.platform, self._models.spec, model_hash)
                tried[model_hash] = None
            except (ModynError, OSError) as error:
                tried[model_hash] = str(error)
        return tried[model_hash]

    @property
    def _enters_late(self) -> bool:
        """True where samples may enter a test later than with their own batch."""
        return self._view.label_position is not None or self._models.spec.evaluation.maturity is not None

    def _arrived(self, candidate: int, after: int, since: int) -> KeyArray:
        """Keys of labelled samples after a key that arrived after a batch and up to this one, ``uint64[n]``."""
        keys = self._candidates(candidate, max(after, self._view.last_key_of(since)), self.batch)
        return keys[self._labelled(keys, self.batch)]

    def _candidates(self, candidate: int, after: int, until: int) -> KeyArray:
        """Keys of present evaluation samples after a key and up to a batch that are no calibration samples, ``uint64[n]``."""
        first = ordinal_of(after + 1)
        if first > until:
            return _NONE
        keys = self._predictions.of(self._models.contexts[candidate], first, until).keys
        keys = keys[keys.astype(np.int64) > after]
        chosen: KeyArray = keys[self._view.sides(keys) != CALIBRATE]
        return chosen

    def _eligible(self, candidate: int, after: int, batch: int) -> KeyArray:
        keys = self._candidates(candidate, after, batch)
        eligible: KeyArray = keys[self._mature(keys, batch) & self._labelled(keys, batch)]
        return eligible

    def _mature(self, keys: KeyArray, batch: int) -> Mask:
        maturity = self._models.spec.evaluation.maturity
        if maturity is None:
            return np.ones(len(keys), dtype=np.bool_)
        return self._view.up_to(batch).are_older(keys, timedelta_of(maturity))

    def _labelled(self, keys: KeyArray, batch: int) -> Mask:
        if self._view.spec.label is None:
            return np.ones(len(keys), dtype=np.bool_)
        return is_labelled(self._view.up_to(batch).labels_at(keys))

    def _truth(self, found: Predictions, batch: int) -> npt.NDArray[np.int64] | npt.NDArray[np.float64]:
        return found.truth if self._view.label_position is None else self._view.up_to(batch).labels_at(found.keys)

    def _pairs(self, candidate: int, incumbent: int, entries: Sequence[tuple[KeyArray, int]]) -> Pairs:
        """Pairs of entries, each of which is keys in order, and the batch that they enter with."""
        own, other = (self._models.contexts[each] for each in (candidate, incumbent))
        parts: list[tuple[Predictions, Predictions, npt.NDArray[np.int64] | npt.NDArray[np.float64]]] = []
        for keys, batch in entries:
            if len(keys) == 0:
                continue
            first = ordinal_of(int(keys[0]))
            ours, theirs = (self._predictions.of(each, first, batch) for each in (own, other))
            common, mine, rest = np.intersect1d(ours.keys, theirs.keys, assume_unique=True, return_indices=True)
            kept = np.isin(common, keys, assume_unique=True)
            ours, theirs = ours.take(mine[kept]), theirs.take(rest[kept])
            parts.append((ours, theirs, self._truth(ours, batch)))
        if not parts:
            ours, theirs = (Predictions.empty("class", _n_outputs(each)) for each in (own, other))
            return Pairs(ours.truth, ours.outputs, theirs.outputs, {})
        ours = Predictions.concat([part[0] for part in parts])
        theirs = Predictions.concat([part[1] for part in parts])
        return Pairs(np.concatenate([part[2] for part in parts]), ours.outputs, theirs.outputs, self._slices(own, ours))

    def _slices(self, context: TriggerContext, found: Predictions) -> Mapping[str, npt.NDArray[np.object_]]:
        promotion = self._models.spec.promotion
        names = {rule.slice for rule in promotion.guardrails.metrics if rule.slice} if promotion is not None else set()
        return {name: slice_values(context, evaluation_set(context), found, name) for name in sorted(names)} if names else {}


def _n_outputs(context: TriggerContext) -> int:
    return 1 if context.model is None else int(context.model.architecture["n_outputs"])
