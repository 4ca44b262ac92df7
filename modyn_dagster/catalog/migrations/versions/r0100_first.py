"""First schema of the catalog, with every table."""

from datetime import datetime

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0100"
down_revision = None

_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    _streams()
    _pipelines()
    _results()


def _streams() -> None:
    op.create_table(
        "dataset",
        _id(),
        sa.Column("name", sa.Text, nullable=False, unique=True),
        sa.Column("spec", JSONB, nullable=False),
        sa.Column("columns", JSONB),
        sa.Column("class_names", JSONB, nullable=False, server_default="[]"),
        sa.Column("next_ordinal", sa.Integer, nullable=False, server_default="0"),
        _created(),
    )
    op.create_table(
        "batch",
        _id(),
        sa.Column("dataset_id", sa.Integer, sa.ForeignKey("dataset.id"), nullable=False),
        sa.Column("ordinal", sa.Integer, nullable=False),
        sa.Column("partition_key", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False, server_default="open"),
        sa.Column("source", JSONB, nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("repaired_by", sa.Integer, sa.ForeignKey("batch.id")),
        sa.Column("n_samples", sa.BigInteger),
        sa.Column("n_train", sa.BigInteger),
        sa.Column("time_min", _TIME),
        sa.Column("time_max", _TIME),
        sa.Column("train_time_max", _TIME),
        sa.Column("label_counts", JSONB),
        sa.Column("index_path", sa.Text),
        sa.Column("index_checksum", sa.Text),
        sa.Column("content_checksum", sa.Text),
        sa.Column("deleted_version", sa.Integer, nullable=False, server_default="0"),
        sa.Column("deleted_checksum", sa.Text),
        sa.Column("n_deleted", sa.BigInteger, nullable=False, server_default="0"),
        _created(),
        sa.Column("ingested_at", _TIME),
        sa.UniqueConstraint("dataset_id", "partition_key"),
        sa.UniqueConstraint("dataset_id", "ordinal"),
        sa.CheckConstraint("state in ('open', 'ingested', 'failed')", name="state"),
        sa.CheckConstraint("(deleted_version = 0) = (deleted_checksum is null)", name="deleted_list"),
    )
    op.create_table(
        "source_file",
        _id(),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("mtime_ns", sa.BigInteger),
        sa.Column("checksum", sa.Text),
        sa.Column("dataset_id", sa.Integer, sa.ForeignKey("dataset.id"), nullable=False),
        sa.Column("batch_id", sa.Integer, sa.ForeignKey("batch.id"), nullable=False),
        sa.UniqueConstraint("batch_id", "path"),
    )
    op.create_index("ix_source_file_dataset_id_path", "source_file", ["dataset_id", "path"])
    op.create_table(
        "sample",
        sa.Column("dataset_id", sa.Integer, nullable=False),
        sa.Column("key", sa.BigInteger, nullable=False),
        sa.Column("time", _TIME, nullable=False),
        sa.Column("label", sa.BigInteger),
        sa.Column("target", sa.Double),
        sa.Column("attributes", JSONB),
        postgresql_partition_by="LIST (dataset_id)",
    )
    op.create_table(
        "deletion",
        _id(),
        sa.Column("dataset_id", sa.Integer, sa.ForeignKey("dataset.id"), nullable=False),
        sa.Column("key", sa.BigInteger, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("purged_at", _TIME),
        _created(),
        sa.UniqueConstraint("dataset_id", "key"),
    )


def _pipelines() -> None:
    op.create_table(
        "pipeline",
        _id(),
        sa.Column("name", sa.Text, nullable=False, unique=True),
        sa.Column("dataset_id", sa.Integer, sa.ForeignKey("dataset.id"), nullable=False),
        _created(),
    )
    op.create_table(
        "pipeline_spec",
        _id(),
        sa.Column("pipeline_id", sa.Integer, sa.ForeignKey("pipeline.id"), nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
        sa.Column("spec", JSONB, nullable=False),
        _created(),
        sa.UniqueConstraint("pipeline_id", "hash"),
    )
    op.create_table(
        "pipeline_run",
        _id(),
        sa.Column("pipeline_id", sa.Integer, sa.ForeignKey("pipeline.id"), nullable=False),
        sa.Column("spec_id", sa.Integer, sa.ForeignKey("pipeline_spec.id"), nullable=False),
        sa.Column("mode", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False, server_default=""),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("threads", sa.Integer, nullable=False),
        sa.Column("state", sa.Text, nullable=False, server_default="active"),
        sa.Column("origin", sa.BigInteger, nullable=False, server_default="-1"),
        sa.Column("cursor", sa.BigInteger, nullable=False, server_default="-1"),
        sa.Column("last_ordinal", sa.Integer, nullable=False, server_default="-1"),
        sa.Column("epoch", sa.Integer, nullable=False, server_default="0"),
        sa.Column("policy_state", JSONB, nullable=False, server_default="{}"),
        sa.Column("selector_state", JSONB, nullable=False, server_default="{}"),
        sa.Column("previous_model", sa.Text),
        sa.Column("mlflow_run_id", sa.Text),
        sa.Column("options", JSONB, nullable=False, server_default="{}"),
        _created(),
        sa.Column("finished_at", _TIME),
        sa.CheckConstraint("state in ('active', 'waiting', 'stopping', 'stopped', 'finished', 'ended')", name="state"),
        sa.CheckConstraint("mode in ('live', 'replay')", name="mode"),
    )
    op.create_index(
        "uq_pipeline_run_live",
        "pipeline_run",
        ["pipeline_id"],
        unique=True,
        postgresql_where=sa.text("mode = 'live' and state in ('active', 'waiting', 'stopping', 'stopped')"),
    )
    op.create_table(
        "trigger",
        _id(),
        sa.Column("run_id", sa.Integer, sa.ForeignKey("pipeline_run.id"), nullable=False),
        sa.Column("ordinal", sa.Integer, nullable=False),
        sa.Column("key", sa.BigInteger, nullable=False),
        sa.Column("point", sa.BigInteger, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("score", sa.Double),
        sa.Column("threshold", sa.Double),
        sa.Column("manual", sa.Boolean, nullable=False, server_default=sa.false()),
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
    op.create_table(
        "decision",
        _id(),
        sa.Column("run_id", sa.Integer, sa.ForeignKey("pipeline_run.id"), nullable=False),
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
    op.create_table(
        "measurement",
        _id(),
        sa.Column("run_id", sa.Integer, sa.ForeignKey("pipeline_run.id"), nullable=False),
        sa.Column("point", sa.BigInteger, nullable=False),
        sa.Column("model_hash", sa.Text, nullable=False),
        sa.Column("asked", sa.Text, nullable=False, server_default=""),
        sa.Column("values", JSONB, nullable=False),
        sa.Column("details", JSONB, nullable=False, server_default="{}"),
        _created(),
        sa.UniqueConstraint("run_id", "point", "model_hash"),
    )


def _results() -> None:
    op.create_table(
        "training_set",
        sa.Column("trigger_id", sa.Integer, sa.ForeignKey("trigger.id"), primary_key=True),
        sa.Column("after", sa.BigInteger, nullable=False),
        sa.Column("until", sa.BigInteger, nullable=False),
        sa.Column("n_pool", sa.BigInteger, nullable=False),
        sa.Column("n_samples", sa.BigInteger, nullable=False),
        sa.Column("time_min", _TIME),
        sa.Column("time_max", _TIME),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("checksum", sa.Text, nullable=False),
        sa.Column("removed_at", _TIME),
        sa.Column("details", JSONB, nullable=False, server_default="{}"),
        _created(),
    )
    op.create_table(
        "model",
        sa.Column("trigger_id", sa.Integer, sa.ForeignKey("trigger.id"), primary_key=True),
        sa.Column("hash", sa.Text, nullable=False),
        sa.Column("previous_hash", sa.Text),
        sa.Column("n_samples", sa.BigInteger, nullable=False),
        sa.Column("train_start", _TIME, nullable=False),
        sa.Column("train_end", _TIME, nullable=False),
        sa.Column("architecture", JSONB, nullable=False),
        sa.Column("losses", JSONB, nullable=False),
        sa.Column("curve", JSONB, nullable=False),
        _created(),
        sa.Column("seconds", sa.Double),
        sa.Column("training", JSONB, nullable=False, server_default="{}"),
    )
    op.create_index("ix_model_hash", "model", ["hash"])
    op.create_table(
        "prediction_file",
        _id(),
        sa.Column("trigger_id", sa.Integer, sa.ForeignKey("trigger.id"), nullable=False),
        sa.Column("model_hash", sa.Text, nullable=False),
        sa.Column("first_key", sa.BigInteger, nullable=False),
        sa.Column("last_key", sa.BigInteger, nullable=False),
        sa.Column("n_samples", sa.BigInteger, nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("checksum", sa.Text, nullable=False),
        sa.Column("removed_at", _TIME),
        sa.Column("source", sa.Text, nullable=False, server_default=""),
        _created(),
        sa.UniqueConstraint("trigger_id", "model_hash", "first_key"),
    )
    op.create_index("ix_prediction_file_model_hash", "prediction_file", ["model_hash"])
    op.create_table(
        "evaluation",
        _id(),
        sa.Column("trigger_id", sa.Integer, sa.ForeignKey("trigger.id"), nullable=False),
        sa.Column("interval_start", _TIME, nullable=False),
        sa.Column("interval_end", _TIME, nullable=False),
        sa.Column("metric", sa.Text, nullable=False),
        sa.Column("n_samples", sa.BigInteger, nullable=False),
        sa.Column("value", sa.Double),
        sa.Column("undefined", sa.Text),
        sa.Column("seen_in_training", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("n_deleted", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("address", sa.Text, nullable=False, server_default=""),
        sa.Column("subset", sa.Text, nullable=False, server_default=""),
        sa.Column("low", sa.Double),
        sa.Column("high", sa.Double),
        _created(),
        sa.UniqueConstraint("trigger_id", "interval_start", "interval_end", "metric", "subset", name="uq_evaluation_cell"),
        sa.CheckConstraint("(value is null) <> (undefined is null)", name="value_or_reason"),
        sa.CheckConstraint("(low is null) = (high is null)", name="confidence"),
    )
    op.create_index("ix_evaluation_address", "evaluation", ["address"])
    op.create_table(
        "stage_timing",
        _id(),
        sa.Column("stage", sa.Text, nullable=False),
        sa.Column("seconds", sa.Double, nullable=False),
        sa.Column("n_samples", sa.BigInteger),
        sa.Column("batch_ordinal", sa.Integer),
        sa.Column("n_bytes", sa.BigInteger),
        sa.Column("run_id", sa.Integer, sa.ForeignKey("pipeline_run.id"), nullable=False),
        sa.Column("trigger_id", sa.Integer, sa.ForeignKey("trigger.id")),
        sa.Column("attempt", sa.Integer),
        _created(),
    )
    op.create_index("ix_stage_timing_run_id_trigger_id", "stage_timing", ["run_id", "trigger_id"])
    op.create_table(
        "notification",
        _id(),
        sa.Column("run_id", sa.Integer, sa.ForeignKey("pipeline_run.id"), nullable=False),
        sa.Column("event", sa.Text, nullable=False),
        sa.Column("hook", sa.Text, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("told_at", _TIME),
        _created(),
        sa.UniqueConstraint("run_id", "event"),
    )


def _id() -> sa.Column[int]:
    return sa.Column("id", sa.Integer, sa.Identity(), primary_key=True)


def _created() -> sa.Column[datetime]:
    return sa.Column("created_at", _TIME, nullable=False, server_default=sa.func.now())
