"""Reading options of trainings, as a Dagster resource."""

from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

if TYPE_CHECKING:
    from modyn_dagster.training import FastPath


class FastPathResource(dg.ConfigurableResource):  # type: ignore[type-arg]  # it gives itself, no other type
    """Settings of this machine, not of a pipeline: none of them changes a model, so no run's identity holds them.

    What does change a model (``shuffle``, ``block_size``, ``batch_size``) stands in the pipeline's spec.
    """

    threads: int = Field(default=1, ge=1, description="Threads that prefetch: they gather, parse and prepare batches.")
    prefetch: int = Field(default=2, ge=0, description="Batches made ahead of the model; 0: none, without threads.")
    cache_mb: int = Field(
        default=256, ge=0, description="Training sets up to this size (as the model's inputs) stay in memory between epochs."
    )
    resident: bool = Field(
        default=False,
        description="Keep the files of the samples in memory, in large pages: twice as fast for sets of gigabytes, and it takes "
        "as much memory as the files are large.",
    )
    pin: bool | None = Field(
        default=None, description="Page-locked memory for batches; default: where the model trains on a GPU."
    )

    def settings(self) -> "FastPath":
        """For ``modyn_dagster.training.train``."""
        from modyn_dagster.training import FastPath

        return FastPath(self.threads, self.prefetch, self.cache_mb << 20, self.pin, self.resident)
