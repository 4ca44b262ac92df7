"""Facts of a run that another run of the same code must repeat: rows of the catalog, and hashes of files and weights.

Left out are ids of rows, paths, moments of the run and seconds: they say when and where something was done.
"""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.pipeline.weights import weights_of

#: Rows of one kind, as JSON has them, all with the same fields.
Rows = list[dict[str, Any]]
#: Facts by kind.
Facts = dict[str, Rows]

_OF_RUN: Final = "from trigger t join {table} x on x.trigger_id = t.id where t.run_id = :run order by"
QUERIES: Final[Mapping[str, str]] = {
    "run": """select r.mode, r.name, r.seed, r.threads, r.state, r.origin, r.cursor, r.last_ordinal, r.policy_state,
        r.selector_state, r.options, s.hash spec_hash
        from pipeline_run r join pipeline_spec s on s.id = r.spec_id where r.id = :run""",
    "decisions": """select point, key, time, fire, reason, score, threshold, details
        from decision where run_id = :run order by point""",
    "triggers": """select ordinal, key, point, reason, score, threshold, manual, state, attempt, error
        from trigger where run_id = :run order by ordinal""",
    "training_sets": f"""select t.ordinal, x.after, x.until, x.n_pool, x.n_samples, x.time_min, x.time_max, x.checksum, x.path,
        x.details {_OF_RUN.format(table="training_set")} t.ordinal""",
    "models": f"""select t.ordinal, x.hash, x.previous_hash, x.n_samples, x.train_start, x.train_end, x.architecture, x.losses,
        x.curve {_OF_RUN.format(table="model")} t.ordinal""",
    "predictions": f"""select t.ordinal, x.model_hash, x.first_key, x.last_key, x.n_samples, x.checksum, x.source, x.path
        {_OF_RUN.format(table="prediction_file")} t.ordinal, x.first_key, x.source""",
    "cells": f"""select t.ordinal, x.interval_start, x.interval_end, x.metric, x.subset, x.n_samples, x.n_deleted, x.value,
        x.undefined, x.seen_in_training, x.low, x.high, x.address
        {_OF_RUN.format(table="evaluation")} t.ordinal, x.interval_start, x.interval_end, x.metric, x.subset""",
    "measurements": """select point, model_hash, asked, "values", details from measurement where run_id = :run
        order by point, model_hash""",
    "batches": """select b.ordinal, b.partition_key, b.state, b.error, b.n_samples, b.n_train, b.time_min, b.time_max,
        b.label_counts, b.index_path path, b.index_checksum, b.content_checksum, d.columns, d.class_names
        from batch b join dataset d on d.id = b.dataset_id where d.name = :dataset order by b.ordinal""",
    "samples": """select s.key, s.time, s.label, s.target, s.attributes
        from sample s join dataset d on d.id = s.dataset_id where d.name = :dataset order by s.key""",
}
_OF_DATASETS: Final = ("batches", "samples")


def facts_of_run(platform: Platform, pipeline: str, mode: str) -> Facts:
    """Everything about the only run of a pipeline in this mode."""
    statement = sa.text(
        "select r.id from pipeline_run r join pipeline p on p.id = r.pipeline_id where p.name = :name and r.mode = :mode"
    )
    with platform.transaction() as conn:
        run = conn.execute(statement, {"name": pipeline, "mode": mode}).scalar_one()
    facts = {kind: _rows(platform, kind, run=run) for kind in QUERIES if kind not in _OF_DATASETS}
    for row in facts["run"]:
        del row["mode"]
    return facts | _facts_of_models(platform, pipeline, [row["hash"] for row in facts["models"]])


def facts_of_dataset(platform: Platform, dataset: str) -> Facts:
    """The batches of a dataset, and one hash of all rows of its samples."""
    samples = _rows(platform, "samples", dataset=dataset)
    digest = hashlib.sha256(repr(samples).encode()).hexdigest()
    return {"batches": _rows(platform, "batches", dataset=dataset), "samples": [{"rows": len(samples), "sha256": digest}]}


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _facts_of_models(platform: Platform, pipeline: str, models: Sequence[str]) -> Facts:
    """Weights hashed by themselves, how models are stored, and what of it names or hashes our own code."""
    spec = platform.pipeline(pipeline)
    facts: Facts = {"weights": [], "stored": [], "code": []}
    for model in models:
        info = platform.models_of(spec).info(model)
        digest = hashlib.sha256()
        for name, tensor in weights_of(platform, spec, model).items():
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode() + tensor.contiguous().numpy().tobytes())
        facts["weights"].append({"sha256": digest.hexdigest()})
        provenance = dict(info.provenance or {})
        code = {"train": provenance.pop("train", None), "code": provenance.pop("code", None)}
        facts["code"].append(code | {"factory": (info.architecture or {}).get("factory"), "source": info.code})
        provenance.pop("seconds", None)
        if "args" in provenance:
            # The key of a trigger begins with the number of its run.
            provenance["args"] = provenance["args"] | {"trigger": provenance["args"]["trigger"].partition("-")[2]}
        facts["stored"].append(
            {
                "id": info.id,
                "strategy": info.strategy,
                "base": info.base,
                "needs": list(info.needs),
                "full_bytes": info.full_bytes,
                "provenance": provenance,
            }
        )
    return facts


def _rows(platform: Platform, kind: str, **of: object) -> Rows:
    with platform.transaction() as conn:
        rows = conn.execute(sa.text(QUERIES[kind]), of).mappings().all()
    return [_row(platform.home, row) for row in rows]


def _row(home: Path, row: Mapping[Any, Any]) -> dict[str, Any]:
    """A row with the hash of the file it names instead of its path, which holds ids."""
    values = {str(name): _plain(value) for name, value in row.items()}
    if isinstance(path := values.pop("path", None), str):
        values["sha256"] = sha256_of(home / path)
        state = (home / path).with_suffix(".state.json")
        values["state_sha256"] = sha256_of(state) if state.is_file() else None
    return values


def _plain(value: object) -> object:
    """A value as JSON has it; paths in details go as well."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items() if name != "path"}
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value
