"""How samples get to a training: settings that change how long it takes and nothing else."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FastPath:
    """How a training reads.

    Attributes:
        threads: that prefetch: they gather, parse and prepare batches.
        prefetch: batches made ahead of the model.
        cache_bytes: training sets whose inputs are at most this large stay in memory between epochs.
        pin: page-locked memory for batches on their way to a GPU; None: where there is one.
        resident: keep the shards and files of the samples in memory, in large pages.
    """

    threads: int = 1
    prefetch: int = 2
    cache_bytes: int = 256 << 20
    pin: bool | None = None
    resident: bool = False
