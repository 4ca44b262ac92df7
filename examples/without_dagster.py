"""Policies, samplers, the fast path and the model store without Dagster and MLflow, as in a notebook.

Run it in a project that `modyn-dagster init` made; it starts the embedded Postgres and stops it again:

    modyn-dagster init shop --template tabular
    cd shop && python ../without_dagster.py shop
"""

import sys

import numpy as np
import torch

from fastpath import BatchStream, SampleStore, TrainingSet
from modyn_dagster.cli.server import running_database
from modyn_dagster.ingestion.history import import_history
from modyn_dagster.model_store import ModelStore
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.selection.time_biased import RTBS, decay_for
from modyn_dagster.settings import Settings
from modyn_dagster.triggering import build_policy, simulate


def main(dataset: str) -> None:
    """Ingest a dataset, ask a policy when to train on it, sample what to train on, read it, and store a model."""
    settings = Settings.from_environment()
    with running_database(settings):
        platform = Platform.open(settings)
        root = platform.project.root_of(dataset)
        import_history(platform.engine, platform.home, platform.project.datasets[dataset], root, by="time:1d")
        batches = platform.view(dataset).batches
        platform.close()

    # Samples of a batch have the keys from (ordinal << 32) on.
    keys = [np.arange(batch.n_samples, dtype=np.uint64) + np.uint64(batch.ordinal << 32) for batch in batches]
    store = SampleStore.open(sorted((platform.home / "batches" / dataset).glob("*.arrow")), root=root)
    times = store.timestamps(np.concatenate(keys))

    policy = build_policy({"kind": "time", "every": "7d"})
    fired = [decision for decision in simulate(policy, times) if decision.fire]
    print(f"{len(times)} samples of {len(batches)} days, {len(fired)} triggers")

    sampler = RTBS(n=200, decay=decay_for(k=30, n=1, q=0.1), seed=0)
    for arrived in keys:
        sampler.update(arrived, elapsed=1.0)
    chosen = np.sort(np.asarray(sampler.sample(), dtype=np.uint64))
    batch = next(iter(BatchStream(store, TrainingSet.of(chosen), 64, seed=1, labels=True)))
    print(f"{len(chosen)} samples chosen; a batch of {len(batch.keys)} with labels {sorted(set(batch.labels.tolist()))}")

    models = ModelStore(settings.home / "own_models")
    model = models.save(torch.nn.Linear(3, 2).state_dict())
    print(f"model {model[:8]} verified: {models.verify(model) == []}")


if __name__ == "__main__":
    main(sys.argv[1])
