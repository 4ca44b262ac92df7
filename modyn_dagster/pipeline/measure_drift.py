"""How far the newest samples are from those the newest model has seen."""

import numpy as np
import numpy.typing as npt

from modyn_dagster.pipeline.question import Question, shown, tap_of
from modyn_dagster.randomness import seed_for
from modyn_dagster.triggering import DriftNeed, Measured


def measure_drift(question: Question, need: DriftNeed) -> Measured:
    """Every metric of a need between its two windows; None for all of them where a window has no sample left."""
    reference, current = question.samples(need.reference), question.samples(need.current)
    windows = {
        "reference_window": shown(need.reference, len(reference.keys)),
        "current_window": shown(need.current, len(current.keys)),
    }
    if len(reference.keys) == 0 or len(current.keys) == 0:
        return Measured(dict.fromkeys(need.metrics), {**windows, "undefined": "a window has no samples"})
    tap = tap_of(need.features)
    arrays = [_features(question, need, values.taps[tap]) for values in (reference, current)]
    # Imported here: torch comes with both, and sensors import what this file stands beside.
    from modyn_dagster.reproducible import reproducible
    from modyn_dagster.triggering.drift import measure_drift as measure

    seed = seed_for(question.run.seed, "drift", question.point)
    # Other libraries draw from generators of the process.
    with reproducible(seed, threads=question.run.threads, deterministic=False):
        found = measure(need, *arrays, seed=seed)
    return Measured(found.values, {**found.details, **windows})


def _features(question: Question, need: DriftNeed, values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    if need.features.of != "outputs" or not question.is_class:
        return values
    logits = values.astype(np.float64)
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True), dtype=np.float32)
