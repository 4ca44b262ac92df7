"""Updates of replay memories. Features and losses come from the newest model at each sample's arrival."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from modyn_dagster.catalog.results.models import ModelRow, list_models
from modyn_dagster.catalog.triggers import TriggerRow
from modyn_dagster.data.labels import task_kind
from modyn_dagster.data.window_columns import WindowColumns
from modyn_dagster.keys import KeyArray, KeyRange
from modyn_dagster.pipeline.context import TriggerContext
from modyn_dagster.pipeline.measure.feature_extractor import BlockCache, FeatureExtractor
from modyn_dagster.pipeline.models import predictor_of
from modyn_dagster.pipeline.training_stream import BatchPart, batch_parts
from modyn_dagster.selection.memory import CLIB, GDumb, Memory, Needs
from modyn_dagster.selection.online import OnlineState
from modyn_dagster.training.data import EMBEDDING, OUTPUTS

Known = dict[str, npt.NDArray[np.float64]]


def update_replay_memory(context: TriggerContext, state: OnlineState, memory: Memory, trigger: TriggerRow) -> None:
    """Take in what came up to a trigger, batch by batch; deleted samples, and those without a class, are passed over.

    Losses and gradients are those of the model of the last trained trigger before it, on fixed blocks of positions as all
    measuring: the same live and in a replay. Until there is one the memory does without.
    """
    window = KeyRange(state.until, trigger.key)
    with _newest_model(context, memory, trigger) as model:
        for part in batch_parts(context.view, window):
            keys, labels = _labelled(context, part)
            known: dict[str, npt.NDArray[np.float64] | npt.NDArray[np.int64]] = {}
            if isinstance(memory, GDumb | CLIB):
                known["labels"] = labels
            if model is not None and memory.VALUES and len(keys):
                known |= _values(context, model, memory.needs(keys))
            state.remember(keys, len(part.keys), part.time, part.until, **known)


@contextmanager
def _newest_model(context: TriggerContext, memory: Memory, trigger: TriggerRow) -> Iterator[FeatureExtractor | None]:
    model = _model_before(context, trigger) if memory.VALUES else None
    if model is None:
        yield None
        return
    predictor = predictor_of(context.platform, context.run, model, context.view)
    try:
        yield FeatureExtractor(predictor, model.hash, BlockCache())
    finally:
        predictor.close()


def _model_before(context: TriggerContext, trigger: TriggerRow) -> ModelRow | None:
    with context.platform.transaction() as conn:
        earlier = [model for model in list_models(conn, context.run.id) if model.ordinal < trigger.ordinal]
    return earlier[-1] if earlier else None


def _labelled(context: TriggerContext, part: BatchPart) -> tuple[KeyArray, npt.NDArray[np.int64]]:
    """The samples of a part that are there and, where the dataset has classes, have one."""
    if context.view.spec.label is None or context.view.spec.label.kind != "class":
        return part.keys[~part.deleted], np.zeros(int(np.count_nonzero(~part.deleted)), np.int64)
    window = KeyRange(int(part.keys[0]) - 1, part.until)
    found = list(WindowColumns(context.view, window, context.spec.selection.backend).labels())
    keys = np.concatenate([np.empty(0, np.uint64), *(chunk for chunk, _ in found)])
    labels = np.concatenate([np.empty(0, np.int64), *(chunk for _, chunk in found)])
    return keys[labels >= 0], labels[labels >= 0]


def _values(context: TriggerContext, model: FeatureExtractor, needs: Needs) -> Known:
    """Losses, or the gradients of the last layer as two factors, ``float64[m, …]`` in the order of ``needs.keys``."""
    order = np.argsort(needs.keys)
    taps = {OUTPUTS} | ({EMBEDDING} if "gradients" in needs.values else set())
    found = model.values(context.view, needs.keys[order], taps)
    back = np.argsort(order)
    outputs = found.taps[OUTPUTS].astype(np.float64)[back]
    truth = np.asarray(found.truth)[back]
    is_class = task_kind(context.spec.training, context.view.spec) == "class"
    errors, losses = _of_classes(outputs, truth) if is_class else _of_targets(outputs, truth)
    if "losses" in needs.values:
        return {"losses": losses}
    embeddings = found.taps[EMBEDDING].astype(np.float64)[back]
    # The last layer's bias sees a one.
    return {"gradients": errors, "embeddings": np.column_stack([embeddings, np.ones(len(embeddings))])}


def _of_classes(
    logits: npt.NDArray[np.float64], truth: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Gradients of the cross-entropy by the logits, ``[m, classes]``, and its values, ``[m]``.

    A class that came after the model has the least probability there is; a sample without a class has no loss.
    """
    shifted = logits - logits.max(axis=1, keepdims=True)
    powers = np.exp(shifted)
    total = powers.sum(axis=1, keepdims=True)
    errors, losses = powers / total, np.full(len(truth), -np.log(np.finfo(np.float64).tiny))
    rows = np.flatnonzero((truth >= 0) & (truth < logits.shape[1]))
    errors[rows, truth[rows]] -= 1
    losses[rows] = np.log(total[rows, 0]) - shifted[rows, truth[rows]]
    errors[truth < 0], losses[truth < 0] = 0, 0
    return errors, losses


def _of_targets(
    outputs: npt.NDArray[np.float64], truth: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The same of squared errors; a sample without a target has none."""
    errors: npt.NDArray[np.float64] = np.nan_to_num(outputs - truth[:, None], nan=0.0)
    return 2.0 * errors, (errors**2).sum(axis=1)
