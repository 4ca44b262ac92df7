"""The tables of the ``modyn`` database (DESIGN: one row per fact, states change by compare-and-set).

Keys are ``bigint`` positions in the stream (``modyn_dagster.keys``), times are ``timestamptz`` in UTC with
microseconds. Migrations live in ``catalog/migrations``; a test compares them with this module.
"""

from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_TIME = sa.DateTime(timezone=True)


def _id() -> sa.Column[int]:
    return sa.Column("id", sa.Integer, sa.Identity(), primary_key=True)


def _created() -> sa.Column[datetime]:
    return sa.Column("created_at", _TIME, nullable=False, server_default=sa.func.now())


dataset = sa.Table(
    "dataset",
    metadata,
    _id(),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("spec", JSONB, nullable=False),
    # Column names and dtypes, fixed by the first ingested batch: [{"name": ..., "dtype": ...}, ...].
    sa.Column("columns", JSONB),
    # Class names in the order of their index; append-only, empty when labels are integers or absent.
    sa.Column("class_names", JSONB, nullable=False, server_default="[]"),
    sa.Column("next_ordinal", sa.Integer, nullable=False, server_default="0"),
    _created(),
)

batch = sa.Table(
    "batch",
    metadata,
    _id(),
    sa.Column("dataset_id", sa.ForeignKey("dataset.id"), nullable=False),
    sa.Column("ordinal", sa.Integer, nullable=False),
    sa.Column("partition_key", sa.Text, nullable=False),
    # open -> ingested | failed; only an open batch holds pipelines back.
    sa.Column("state", sa.Text, nullable=False, server_default="open"),
    # What to ingest: {"files": [...]}, with row ranges where history is cut by time or count.
    sa.Column("source", JSONB, nullable=False),
    sa.Column("error", sa.Text),
    # A failed batch that was delivered again points to its successor.
    sa.Column("repaired_by", sa.ForeignKey("batch.id")),
    sa.Column("n_samples", sa.BigInteger),
    sa.Column("n_train", sa.BigInteger),
    sa.Column("time_min", _TIME),
    sa.Column("time_max", _TIME),
    # Largest time among train samples: the running maximum that triggers see is built from these.
    sa.Column("train_time_max", _TIME),
    sa.Column("label_counts", JSONB),
    sa.Column("index_path", sa.Text),
    sa.Column("index_checksum", sa.Text),
    sa.Column("content_checksum", sa.Text),
    # The list of deleted positions beside the index: its version (0: there is none), checksum and length.
    sa.Column("deleted_version", sa.Integer, nullable=False, server_default="0"),
    sa.Column("deleted_checksum", sa.Text),
    sa.Column("n_deleted", sa.BigInteger, nullable=False, server_default="0"),
    _created(),
    sa.Column("ingested_at", _TIME),
    sa.UniqueConstraint("dataset_id", "ordinal"),
    sa.UniqueConstraint("dataset_id", "partition_key"),
    sa.CheckConstraint("state in ('open', 'ingested', 'failed')", name="state"),
    sa.CheckConstraint("(deleted_version = 0) = (deleted_checksum is null)", name="deleted_list"),
)

source_file = sa.Table(
    "source_file",
    metadata,
    _id(),
    sa.Column("dataset_id", sa.ForeignKey("dataset.id"), nullable=False),
    sa.Column("batch_id", sa.ForeignKey("batch.id"), nullable=False),
    sa.Column("path", sa.Text, nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),
    # Nanoseconds since 1970 of a file that is read in place; null where a shard of ours holds its samples.
    sa.Column("mtime_ns", sa.BigInteger),
    sa.Column("checksum", sa.Text),
    # Bulk import cuts one file into several batches, so a path repeats across slices of one import only.
    sa.UniqueConstraint("batch_id", "path"),
    sa.Index("ix_source_file_dataset_id_path", "dataset_id", "path"),
)

# Partitioned by LIST (dataset_id); one partition per dataset is created when the dataset is registered.
sample = sa.Table(
    "sample",
    metadata,
    sa.Column("dataset_id", sa.Integer, nullable=False),
    sa.Column("key", sa.BigInteger, nullable=False),
    sa.Column("time", _TIME, nullable=False),
    sa.Column("label", sa.BigInteger),
    sa.Column("target", sa.Double),
    sa.Column("attributes", JSONB),
    postgresql_partition_by="LIST (dataset_id)",
)

deletion = sa.Table(
    "deletion",
    metadata,
    _id(),
    sa.Column("dataset_id", sa.ForeignKey("dataset.id"), nullable=False),
    sa.Column("key", sa.BigInteger, nullable=False),
    sa.Column("reason", sa.Text),
    # When its bytes, label, target and attributes were overwritten.
    sa.Column("purged_at", _TIME),
    _created(),
    sa.UniqueConstraint("dataset_id", "key"),
)

pipeline = sa.Table(
    "pipeline",
    metadata,
    _id(),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("dataset_id", sa.ForeignKey("dataset.id"), nullable=False),
    _created(),
)

pipeline_spec = sa.Table(
    "pipeline_spec",
    metadata,
    _id(),
    sa.Column("pipeline_id", sa.ForeignKey("pipeline.id"), nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
    sa.Column("spec", JSONB, nullable=False),
    _created(),
    sa.UniqueConstraint("pipeline_id", "hash"),
)

pipeline_run = sa.Table(
    "pipeline_run",
    metadata,
    _id(),
    sa.Column("pipeline_id", sa.ForeignKey("pipeline.id"), nullable=False),
    sa.Column("spec_id", sa.ForeignKey("pipeline_spec.id"), nullable=False),
    sa.Column("mode", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False, server_default=""),
    sa.Column("seed", sa.BigInteger, nullable=False),
    sa.Column("threads", sa.Integer, nullable=False),
    # active -> waiting (a trigger failed, on_failure: stop) -> active; active -> stopping (an operator stopped it, its trigger
    # is finished first) -> stopped -> active; active -> finished; active -> ended (superseded).
    sa.Column("state", sa.Text, nullable=False, server_default="active"),
    # The run sees the stream after this key; its cursor is the last key it has decided about.
    sa.Column("origin", sa.BigInteger, nullable=False, server_default="-1"),
    sa.Column("cursor", sa.BigInteger, nullable=False, server_default="-1"),
    # Last batch handed to the run (replay: walked; live: seen by the sensor); -1 before the first.
    sa.Column("last_ordinal", sa.Integer, nullable=False, server_default="-1"),
    # Grows with every transition: together with the cursor it is what compare-and-set compares.
    sa.Column("epoch", sa.Integer, nullable=False, server_default="0"),
    sa.Column("policy_state", JSONB, nullable=False, server_default="{}"),
    sa.Column("selector_state", JSONB, nullable=False, server_default="{}"),
    sa.Column("previous_model", sa.Text),
    sa.Column("mlflow_run_id", sa.Text),
    # Of a replay: the runs it takes recorded manual triggers and training seconds from.
    sa.Column("options", JSONB, nullable=False, server_default="{}"),
    _created(),
    sa.Column("finished_at", _TIME),
    sa.CheckConstraint("mode in ('live', 'replay')", name="mode"),
    sa.CheckConstraint("state in ('active', 'waiting', 'stopping', 'stopped', 'finished', 'ended')", name="state"),
    sa.Index(
        "uq_pipeline_run_live",
        "pipeline_id",
        unique=True,
        postgresql_where=sa.text("mode = 'live' and state in ('active', 'waiting', 'stopping', 'stopped')"),
    ),
)

trigger = sa.Table(
    "trigger",
    metadata,
    _id(),
    sa.Column("run_id", sa.ForeignKey("pipeline_run.id"), nullable=False),
    sa.Column("ordinal", sa.Integer, nullable=False),
    # Last key to train on, and the key whose arrival decided.
    sa.Column("key", sa.BigInteger, nullable=False),
    sa.Column("point", sa.BigInteger, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("score", sa.Double),
    sa.Column("threshold", sa.Double),
    # Made by a person, not by the policy.
    sa.Column("manual", sa.Boolean, nullable=False, server_default=sa.false()),
    # pending -> training -> trained | skipped | failed; failed -> pending by `pipeline resume`.
    sa.Column("state", sa.Text, nullable=False, server_default="pending"),
    sa.Column("attempt", sa.Integer, nullable=False, server_default="1"),
    sa.Column("dagster_run_id", sa.Text),
    sa.Column("mlflow_run_id", sa.Text),
    sa.Column("error", sa.Text),
    _created(),
    sa.Column("finished_at", _TIME),
    sa.UniqueConstraint("run_id", "ordinal"),
    sa.UniqueConstraint("run_id", "key"),
    sa.CheckConstraint("state in ('pending', 'training', 'trained', 'skipped', 'failed')", name="state"),
)

training_set = sa.Table(
    "training_set",
    metadata,
    sa.Column("trigger_id", sa.ForeignKey("trigger.id"), primary_key=True),
    # The window (after, until] it was selected from.
    sa.Column("after", sa.BigInteger, nullable=False),
    sa.Column("until", sa.BigInteger, nullable=False),
    sa.Column("n_pool", sa.BigInteger, nullable=False),
    sa.Column("n_samples", sa.BigInteger, nullable=False),
    sa.Column("time_min", _TIME),
    sa.Column("time_max", _TIME),
    sa.Column("path", sa.Text, nullable=False),
    sa.Column("checksum", sa.Text, nullable=False),
    sa.Column("removed_at", _TIME),
    # Of an online strategy: file and checksum of its state, its fill, and why a trigger is skipped.
    sa.Column("details", JSONB, nullable=False, server_default="{}"),
    _created(),
)

model = sa.Table(
    "model",
    metadata,
    sa.Column("trigger_id", sa.ForeignKey("trigger.id"), primary_key=True),
    sa.Column("hash", sa.Text, nullable=False),
    sa.Column("previous_hash", sa.Text),
    sa.Column("n_samples", sa.BigInteger, nullable=False),
    # Smallest and largest sample time of the window, not of the chosen subset.
    sa.Column("train_start", _TIME, nullable=False),
    sa.Column("train_end", _TIME, nullable=False),
    # Names of the columns and classes it was trained on, and what is needed to build the module again.
    sa.Column("architecture", JSONB, nullable=False),
    # Mean loss of each epoch, and [step, loss] points of the curve.
    sa.Column("losses", JSONB, nullable=False),
    sa.Column("curve", JSONB, nullable=False),
    # Steps taken, seconds of every epoch, and libraries, hardware and threads that decided bits.
    sa.Column("training", JSONB, nullable=False, server_default="{}"),
    # Seconds the triggering policy was told that selecting and training took.
    sa.Column("seconds", sa.Double),
    _created(),
    sa.Index("ix_model_hash", "hash"),
)

prediction_file = sa.Table(
    "prediction_file",
    metadata,
    _id(),
    sa.Column("trigger_id", sa.ForeignKey("trigger.id"), nullable=False),
    sa.Column("model_hash", sa.Text, nullable=False),
    sa.Column("first_key", sa.BigInteger, nullable=False),
    sa.Column("last_key", sa.BigInteger, nullable=False),
    sa.Column("n_samples", sa.BigInteger, nullable=False),
    sa.Column("path", sa.Text, nullable=False),
    sa.Column("checksum", sa.Text, nullable=False),
    sa.Column("removed_at", _TIME),
    # Their dataset, and which side of its split where it is not the evaluation side; empty where it was not noted.
    sa.Column("source", sa.Text, nullable=False, server_default=""),
    _created(),
    sa.UniqueConstraint("trigger_id", "model_hash", "first_key"),
    sa.Index("ix_prediction_file_model_hash", "model_hash"),
)

evaluation = sa.Table(
    "evaluation",
    metadata,
    _id(),
    sa.Column("trigger_id", sa.ForeignKey("trigger.id"), nullable=False),
    sa.Column("interval_start", _TIME, nullable=False),
    sa.Column("interval_end", _TIME, nullable=False),
    sa.Column("metric", sa.Text, nullable=False),
    sa.Column("n_samples", sa.BigInteger, nullable=False),
    # Samples of the interval that were deleted when it was scored: with n_samples it tells whether to score again.
    sa.Column("n_deleted", sa.BigInteger, nullable=False, server_default="0"),
    # Null when undefined; then `undefined` says why.
    sa.Column("value", sa.Double),
    sa.Column("undefined", sa.Text),
    sa.Column("seen_in_training", sa.Boolean, nullable=False, server_default=sa.false()),
    # Digest of all the value follows from: model, samples, interval, metric. Equal addresses have equal values; empty: unknown.
    sa.Column("address", sa.Text, nullable=False, server_default=""),
    # Which of the interval's samples: empty for all, else "attribute=value".
    sa.Column("subset", sa.Text, nullable=False, server_default=""),
    # Ends of the confidence interval, where there is one.
    sa.Column("low", sa.Double),
    sa.Column("high", sa.Double),
    _created(),
    sa.UniqueConstraint("trigger_id", "interval_start", "interval_end", "metric", "subset", name="uq_evaluation_cell"),
    sa.CheckConstraint("(value is null) <> (undefined is null)", name="value_or_reason"),
    sa.CheckConstraint("(low is null) = (high is null)", name="confidence"),
    sa.Index("ix_evaluation_address", "address"),
)

decision = sa.Table(
    "decision",
    metadata,
    _id(),
    sa.Column("run_id", sa.ForeignKey("pipeline_run.id"), nullable=False),
    # The key whose arrival decided, the last key to train on, and the running sample time at the point.
    sa.Column("point", sa.BigInteger, nullable=False),
    sa.Column("key", sa.BigInteger, nullable=False),
    sa.Column("time", _TIME, nullable=False),
    sa.Column("fire", sa.Boolean, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("score", sa.Double),
    sa.Column("threshold", sa.Double),
    sa.Column("details", JSONB, nullable=False, server_default="{}"),
    _created(),
    sa.UniqueConstraint("run_id", "point"),
)

measurement = sa.Table(
    "measurement",
    metadata,
    _id(),
    sa.Column("run_id", sa.ForeignKey("pipeline_run.id"), nullable=False),
    sa.Column("point", sa.BigInteger, nullable=False),
    sa.Column("model_hash", sa.Text, nullable=False),
    # Digest of what was asked for: values are an answer to that and to nothing else.
    sa.Column("asked", sa.Text, nullable=False, server_default=""),
    # By path of the need: {"": {"mmd": 0.1}}, and what is worth showing beside the values.
    sa.Column("values", JSONB, nullable=False),
    sa.Column("details", JSONB, nullable=False, server_default="{}"),
    _created(),
    sa.UniqueConstraint("run_id", "point", "model_hash"),
)

stage_timing = sa.Table(
    "stage_timing",
    metadata,
    _id(),
    sa.Column("run_id", sa.ForeignKey("pipeline_run.id"), nullable=False),
    sa.Column("trigger_id", sa.ForeignKey("trigger.id")),
    sa.Column("attempt", sa.Integer),
    # select | train | save | evaluate | decide | measure
    sa.Column("stage", sa.Text, nullable=False),
    sa.Column("seconds", sa.Double, nullable=False),
    sa.Column("n_samples", sa.BigInteger),
    # Of deciding and measuring, which belong to batches and not to a trigger.
    sa.Column("batch_ordinal", sa.Integer),
    # That it wrote to disk.
    sa.Column("n_bytes", sa.BigInteger),
    _created(),
    sa.Index("ix_stage_timing_run_id_trigger_id", "run_id", "trigger_id"),
)

# What a pipeline's hook is told: tried a few times, told once.
notification = sa.Table(
    "notification",
    metadata,
    _id(),
    sa.Column("run_id", sa.ForeignKey("pipeline_run.id"), nullable=False),
    # What happened, unique in its run: "trigger 3", "failed 3 attempt 6", "score 2 accuracy 2024-01-03T00:00:00+00:00".
    sa.Column("event", sa.Text, nullable=False),
    sa.Column("hook", sa.Text, nullable=False),
    sa.Column("tries", sa.Integer, nullable=False),
    sa.Column("error", sa.Text),
    # Null while it is to be tried again.
    sa.Column("told_at", _TIME),
    _created(),
    sa.UniqueConstraint("run_id", "event"),
)
