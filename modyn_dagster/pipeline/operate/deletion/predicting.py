"""Seconds of the predictions that models which stay make again, because their files hold deleted samples."""

from collections.abc import Collection

import sqlalchemy as sa

from modyn_dagster.catalog.results.predictions import predictions_holding
from modyn_dagster.catalog.runs import get_run
from modyn_dagster.catalog.timings import Predicted, predicted_by_trigger
from modyn_dagster.keys import KeyArray
from modyn_dagster.pipeline.platform import Platform


def predicting_seconds(conn: sa.Connection, platform: Platform, dataset: str, keys: KeyArray, going: Collection[str]) -> float:
    """Expect the seconds of predicting again, by what the ledger has of each model; 0 for a file of a lazy evaluation.

    A file that was taken over from an equal model costs what a sample costs on average.

    Args:
        conn: of the catalog.
        platform: of the home.
        dataset: name of the dataset of the samples.
        keys: of the samples, ``uint64[n]``, ascending.
        going: partition keys of the triggers whose models are made again or withdrawn; making again includes their predictions.
    """
    holding = [(trigger, file) for trigger, file in predictions_holding(conn, dataset, keys) if trigger not in going]
    run_ids = {int(trigger.partition("-")[0]) for trigger, _ in holding}
    lazy = {run_id for run_id in run_ids if platform.spec_of(get_run(conn, run_id)).evaluation.matrix == "lazy"}
    predicted = predicted_by_trigger(conn, run_ids - lazy)
    n_samples, seconds = (sum(getattr(each, name) for each in predicted.values()) for name in ("n_samples", "seconds"))
    average = Predicted(max(1, n_samples), seconds)
    rates = {trigger_id: each.seconds / each.n_samples for trigger_id, each in predicted.items()}
    return sum(
        file.n_samples * rates.get(file.trigger_id, average.seconds / average.n_samples)
        for trigger, file in holding
        if int(trigger.partition("-")[0]) not in lazy
    )
