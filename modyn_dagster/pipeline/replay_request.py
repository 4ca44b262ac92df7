"""What somebody asks of a replay."""

from collections.abc import Sequence
from dataclasses import dataclass

from modyn_dagster.training import FastPath


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """Which pipeline to replay over which batches, and as which replay.

    Attributes:
        fast_path: how its trainings read.
        manual_of: id of the run whose manual triggers are repeated at the same keys.
        costs_from: id of the run whose training seconds the policy is told instead of this replay's own.
    """

    pipeline: str
    partition_keys: Sequence[str]
    dagster_run_id: str
    name: str = ""
    seed: int | None = None
    restart: bool = False
    fast_path: FastPath = FastPath()  # noqa: RUF009 - frozen
    manual_of: int | None = None
    costs_from: int | None = None
