"""Cells know what they follow from and how sure they are, also of parts of an interval; the ledger knows bytes."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

_CELL = ["trigger_id", "interval_start", "interval_end", "metric"]


def upgrade() -> None:
    for name in ("address", "subset"):
        op.add_column("evaluation", sa.Column(name, sa.Text, server_default="", nullable=False))
    for name in ("low", "high"):
        op.add_column("evaluation", sa.Column(name, sa.Double, nullable=True))
    op.create_check_constraint("ck_evaluation_confidence", "evaluation", "(low is null) = (high is null)")
    op.create_index("ix_evaluation_address", "evaluation", ["address"])
    op.drop_constraint("uq_evaluation_trigger_id_interval_start_interval_end_metric", "evaluation")
    op.create_unique_constraint("uq_evaluation_cell", "evaluation", [*_CELL, "subset"])
    op.add_column("prediction_file", sa.Column("source", sa.Text, server_default="", nullable=False))
    op.drop_constraint("uq_prediction_file_trigger_id_first_key", "prediction_file")
    columns = ["trigger_id", "model_hash", "first_key"]
    op.create_unique_constraint("uq_prediction_file_trigger_id_model_hash_first_key", "prediction_file", columns)
    op.create_index("ix_prediction_file_model_hash", "prediction_file", ["model_hash"])
    op.add_column("stage_timing", sa.Column("n_bytes", sa.BigInteger, nullable=True))
