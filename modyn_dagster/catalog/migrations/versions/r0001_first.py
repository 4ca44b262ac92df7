"""Everything the catalog began with."""

from datetime import datetime

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0001"
down_revision = None

_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    _streams()
    _pipelines()
    _results()
    _measurements()


def _streams() -> None:
    op.create_table(
        "dataset",
        _id(),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("spec", JSONB, nullable=False),
        sa.Column("columns", JSONB, nullable=True),
        sa.Column("class_names", JSONB, server_default="[]", nullable=False),
        sa.Column("next_ordinal", sa.Integer, server_default="0", nullable=False),
        _created(),
        sa.PrimaryKeyConstraint("id", name="pk_dataset"),
        sa.UniqueConstraint("name", name="uq_dataset_name"),
    )
    op.create_table(
        "sample",
        sa.Column("dataset_id", sa.Integer, nullable=False),
        sa.Column("key", sa.BigInteger, nullable=False),
        sa.Column("time", _TIME, nullable=False),
        sa.Column("label", sa.BigInteger, nullable=True),
        sa.Column("target", sa.Double, nullable=True),
        sa.Column("attributes", JSONB, nullable=True),
        postgresql_partition_by="LIST (dataset_id)",
    )
    op.create_table(
        "batch",
        _id(),
        sa.Column("dataset_id", sa.Integer, nullable=False),
        sa.Column("ordinal", sa.Integer, nullable=False),
        sa.Column("partition_key", sa.Text, nullable=False),
        sa.Column("state", sa.Text, server_default="open", nullable=False),
        sa.Column("source", JSONB, nullable=False),
        sa.Column("error", sa.Text, nullable=True),
        sa.Column("repaired_by", sa.Integer, nullable=True),
        sa.Column("n_samples", sa.BigInteger, nullable=True),
        sa.Column("n_train", sa.BigInteger, nullable=True),
        sa.Column("time_min", _TIME, nullable=True),
        sa.Column("time_max", _TIME, nullable=True),
        sa.Column("train_time_max", _TIME, nullable=True),
        sa.Column("label_counts", JSONB, nullable=True),
        sa.Column("index_path", sa.Text, nullable=True),
        sa.Column("index_checksum", sa.Text, nullable=True),
        sa.Column("content_checksum", sa.Text, nullable=True),
        _created(),
        sa.Column("ingested_at", _TIME, nullable=True),
        sa.CheckConstraint("state in ('open', 'ingested', 'failed')", name="ck_batch_state"),
        sa.ForeignKeyConstraint(["dataset_id"], ["dataset.id"], name="fk_batch_dataset_id_dataset"),
        sa.ForeignKeyConstraint(["repaired_by"], ["batch.id"], name="fk_batch_repaired_by_batch"),
        sa.PrimaryKeyConstraint("id", name="pk_batch"),
        sa.UniqueConstraint("dataset_id", "ordinal", name="uq_batch_dataset_id_ordinal"),
        sa.UniqueConstraint("dataset_id", "partition_key", name="uq_batch_dataset_id_partition_key"),
    )
    op.create_table(
        "source_file",
        _id(),
        sa.Column("dataset_id", sa.Integer, nullable=False),
        sa.Column("batch_id", sa.Integer, nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("mtime_ns", sa.BigInteger, nullable=True),
        sa.Column("checksum", sa.Text, nullable=True),
        sa.ForeignKeyConstraint(["batch_id"], ["batch.id"], name="fk_source_file_batch_id_batch"),
        sa.ForeignKeyConstraint(["dataset_id"], ["dataset.id"], name="fk_source_file_dataset_id_dataset"),
        sa.PrimaryKeyConstraint("id", name="pk_source_file"),
        sa.UniqueConstraint("batch_id", "path", name="uq_source_file_batch_id_path"),
    )
    op.create_index("ix_source_file_dataset_id_path", "source_file", ["dataset_id", "path"], unique=False)
    op.create_table(
        "deletion",
        _id(),
        sa.Column("dataset_id", sa.Integer, nullable=False),
        sa.Column("key", sa.BigInteger, nullable=False),
        sa.Column("reason", sa.Text, nullable=True),
        _created(),
        sa.ForeignKeyConstraint(["dataset_id"], ["dataset.id"], name="fk_deletion_dataset_id_dataset"),
        sa.PrimaryKeyConstraint("id", name="pk_deletion"),
        sa.UniqueConstraint("dataset_id", "key", name="uq_deletion_dataset_id_key"),
    )


def _pipelines() -> None:
    op.create_table(
        "pipeline",
        _id(),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("dataset_id", sa.Integer, nullable=False),
        _created(),
        sa.ForeignKeyConstraint(["dataset_id"], ["dataset.id"], name="fk_pipeline_dataset_id_dataset"),
        sa.PrimaryKeyConstraint("id", name="pk_pipeline"),
        sa.UniqueConstraint("name", name="uq_pipeline_name"),
    )
    op.create_table(
        "pipeline_spec",
        _id(),
        sa.Column("pipeline_id", sa.Integer, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
        sa.Column("spec", JSONB, nullable=False),
        _created(),
        sa.ForeignKeyConstraint(["pipeline_id"], ["pipeline.id"], name="fk_pipeline_spec_pipeline_id_pipeline"),
        sa.PrimaryKeyConstraint("id", name="pk_pipeline_spec"),
        sa.UniqueConstraint("pipeline_id", "hash", name="uq_pipeline_spec_pipeline_id_hash"),
    )
    op.create_table(
        "pipeline_run",
        _id(),
        sa.Column("pipeline_id", sa.Integer, nullable=False),
        sa.Column("spec_id", sa.Integer, nullable=False),
        sa.Column("mode", sa.Text, nullable=False),
        sa.Column("name", sa.Text, server_default="", nullable=False),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("threads", sa.Integer, nullable=False),
        sa.Column("state", sa.Text, server_default="active", nullable=False),
        sa.Column("origin", sa.BigInteger, server_default="-1", nullable=False),
        sa.Column("cursor", sa.BigInteger, server_default="-1", nullable=False),
        sa.Column("last_ordinal", sa.Integer, server_default="-1", nullable=False),
        sa.Column("epoch", sa.Integer, server_default="0", nullable=False),
        sa.Column("policy_state", JSONB, server_default="{}", nullable=False),
        sa.Column("selector_state", JSONB, server_default="{}", nullable=False),
        sa.Column("previous_model", sa.Text, nullable=True),
        sa.Column("mlflow_run_id", sa.Text, nullable=True),
        _created(),
        sa.Column("finished_at", _TIME, nullable=True),
        sa.CheckConstraint("mode in ('live', 'replay')", name="ck_pipeline_run_mode"),
        sa.CheckConstraint("state in ('active', 'waiting', 'finished', 'ended')", name="ck_pipeline_run_state"),
        sa.ForeignKeyConstraint(["pipeline_id"], ["pipeline.id"], name="fk_pipeline_run_pipeline_id_pipeline"),
        sa.ForeignKeyConstraint(["spec_id"], ["pipeline_spec.id"], name="fk_pipeline_run_spec_id_pipeline_spec"),
        sa.PrimaryKeyConstraint("id", name="pk_pipeline_run"),
    )
    op.create_index(
        "uq_pipeline_run_live",
        "pipeline_run",
        ["pipeline_id"],
        unique=True,
        postgresql_where=sa.text("mode = 'live' and state in ('active', 'waiting')"),
    )
    op.create_table(
        "trigger",
        _id(),
        sa.Column("run_id", sa.Integer, nullable=False),
        sa.Column("ordinal", sa.Integer, nullable=False),
        sa.Column("key", sa.BigInteger, nullable=False),
        sa.Column("point", sa.BigInteger, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("score", sa.Double, nullable=True),
        sa.Column("threshold", sa.Double, nullable=True),
        sa.Column("state", sa.Text, server_default="pending", nullable=False),
        sa.Column("attempt", sa.Integer, server_default="1", nullable=False),
        sa.Column("dagster_run_id", sa.Text, nullable=True),
        sa.Column("mlflow_run_id", sa.Text, nullable=True),
        sa.Column("error", sa.Text, nullable=True),
        _created(),
        sa.Column("finished_at", _TIME, nullable=True),
        sa.CheckConstraint("state in ('pending', 'training', 'trained', 'skipped', 'failed')", name="ck_trigger_state"),
        sa.ForeignKeyConstraint(["run_id"], ["pipeline_run.id"], name="fk_trigger_run_id_pipeline_run"),
        sa.PrimaryKeyConstraint("id", name="pk_trigger"),
        sa.UniqueConstraint("run_id", "key", name="uq_trigger_run_id_key"),
        sa.UniqueConstraint("run_id", "ordinal", name="uq_trigger_run_id_ordinal"),
    )


def _results() -> None:
    op.create_table(
        "training_set",
        sa.Column("trigger_id", sa.Integer, nullable=False),
        sa.Column("after", sa.BigInteger, nullable=False),
        sa.Column("until", sa.BigInteger, nullable=False),
        sa.Column("n_pool", sa.BigInteger, nullable=False),
        sa.Column("n_samples", sa.BigInteger, nullable=False),
        sa.Column("time_min", _TIME, nullable=True),
        sa.Column("time_max", _TIME, nullable=True),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("checksum", sa.Text, nullable=False),
        sa.Column("removed_at", _TIME, nullable=True),
        _created(),
        sa.ForeignKeyConstraint(["trigger_id"], ["trigger.id"], name="fk_training_set_trigger_id_trigger"),
        sa.PrimaryKeyConstraint("trigger_id", name="pk_training_set"),
    )
    op.create_table(
        "model",
        sa.Column("trigger_id", sa.Integer, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
        sa.Column("previous_hash", sa.Text, nullable=True),
        sa.Column("n_samples", sa.BigInteger, nullable=False),
        sa.Column("train_start", _TIME, nullable=False),
        sa.Column("train_end", _TIME, nullable=False),
        sa.Column("architecture", JSONB, nullable=False),
        sa.Column("losses", JSONB, nullable=False),
        sa.Column("curve", JSONB, nullable=False),
        _created(),
        sa.ForeignKeyConstraint(["trigger_id"], ["trigger.id"], name="fk_model_trigger_id_trigger"),
        sa.PrimaryKeyConstraint("trigger_id", name="pk_model"),
    )
    op.create_index("ix_model_hash", "model", ["hash"], unique=False)
    op.create_table(
        "prediction_file",
        _id(),
        sa.Column("trigger_id", sa.Integer, nullable=False),
        sa.Column("model_hash", sa.Text, nullable=False),
        sa.Column("first_key", sa.BigInteger, nullable=False),
        sa.Column("last_key", sa.BigInteger, nullable=False),
        sa.Column("n_samples", sa.BigInteger, nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("checksum", sa.Text, nullable=False),
        sa.Column("removed_at", _TIME, nullable=True),
        _created(),
        sa.ForeignKeyConstraint(["trigger_id"], ["trigger.id"], name="fk_prediction_file_trigger_id_trigger"),
        sa.PrimaryKeyConstraint("id", name="pk_prediction_file"),
        sa.UniqueConstraint("trigger_id", "first_key", name="uq_prediction_file_trigger_id_first_key"),
    )
    op.create_table(
        "evaluation",
        _id(),
        sa.Column("trigger_id", sa.Integer, nullable=False),
        sa.Column("interval_start", _TIME, nullable=False),
        sa.Column("interval_end", _TIME, nullable=False),
        sa.Column("metric", sa.Text, nullable=False),
        sa.Column("n_samples", sa.BigInteger, nullable=False),
        sa.Column("value", sa.Double, nullable=True),
        sa.Column("undefined", sa.Text, nullable=True),
        sa.Column("seen_in_training", sa.Boolean, server_default=sa.false(), nullable=False),
        _created(),
        sa.CheckConstraint("(value is null) <> (undefined is null)", name="ck_evaluation_value_or_reason"),
        sa.ForeignKeyConstraint(["trigger_id"], ["trigger.id"], name="fk_evaluation_trigger_id_trigger"),
        sa.PrimaryKeyConstraint("id", name="pk_evaluation"),
        sa.UniqueConstraint(
            "trigger_id",
            "interval_start",
            "interval_end",
            "metric",
            name="uq_evaluation_trigger_id_interval_start_interval_end_metric",
        ),
    )


def _measurements() -> None:
    op.create_table(
        "measurement",
        _id(),
        sa.Column("run_id", sa.Integer, nullable=False),
        sa.Column("point", sa.BigInteger, nullable=False),
        sa.Column("model_hash", sa.Text, nullable=False),
        sa.Column("values", JSONB, nullable=False),
        _created(),
        sa.ForeignKeyConstraint(["run_id"], ["pipeline_run.id"], name="fk_measurement_run_id_pipeline_run"),
        sa.PrimaryKeyConstraint("id", name="pk_measurement"),
        sa.UniqueConstraint("run_id", "point", "model_hash", name="uq_measurement_run_id_point_model_hash"),
    )
    op.create_table(
        "stage_timing",
        _id(),
        sa.Column("run_id", sa.Integer, nullable=False),
        sa.Column("trigger_id", sa.Integer, nullable=True),
        sa.Column("attempt", sa.Integer, nullable=True),
        sa.Column("stage", sa.Text, nullable=False),
        sa.Column("seconds", sa.Double, nullable=False),
        sa.Column("n_samples", sa.BigInteger, nullable=True),
        _created(),
        sa.ForeignKeyConstraint(["run_id"], ["pipeline_run.id"], name="fk_stage_timing_run_id_pipeline_run"),
        sa.ForeignKeyConstraint(["trigger_id"], ["trigger.id"], name="fk_stage_timing_trigger_id_trigger"),
        sa.PrimaryKeyConstraint("id", name="pk_stage_timing"),
    )
    op.create_index("ix_stage_timing_run_id_trigger_id", "stage_timing", ["run_id", "trigger_id"], unique=False)


def _id() -> sa.Column[int]:
    return sa.Column("id", sa.Integer, sa.Identity(), nullable=False)


def _created() -> sa.Column[datetime]:
    return sa.Column("created_at", _TIME, server_default=sa.func.now(), nullable=False)
