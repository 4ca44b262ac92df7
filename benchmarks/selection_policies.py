"""Blocks of a pipeline for the nine selection policies of Modyn's paper (SIGMOD 2025, §7.1), and for more."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

#: Samples per step, whatever the policy and the ratio.
BATCH: Final = 64

Content = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SelectionPolicy:
    """One way to train on a part.

    Attributes:
        name: in tables.
        strategy: kind of the presampling, or None.
        downsampling: policy, mode and options of the downsampling, or None.
    """

    name: str
    strategy: Content | None = None
    downsampling: Content | None = None

    def selection(self, ratio: float) -> Content:
        """The block ``selection``: what came since the last trigger, or a part of it."""
        block: Content = {"window": "since_last_trigger"}
        return block if self.strategy is None else block | {"strategy": self.strategy | {"ratio": ratio}}

    def training(self, ratio: float) -> Content:
        """Fields of the block ``training``.

        A policy that chooses from batches chooses from larger ones, so that every policy makes as many steps of as many samples.
        """
        if self.downsampling is None:
            return {"batch_size": BATCH}
        batches = self.downsampling["mode"] == "batch_then_sample"
        size = round(BATCH / ratio) if batches else BATCH
        return {"batch_size": size, "downsampling": self.downsampling | {"ratio": ratio}}


def _batches(policy: str, **options: str) -> Content:
    return {"policy": policy, "mode": "batch_then_sample", "options": options}


def _whole_set(policy: str, **options: str) -> Content:
    return {"policy": policy, "mode": "sample_then_batch", "options": options}


FULL: Final = SelectionPolicy("full data")

#: The paper's Figure 8.
NINE: Final = (
    SelectionPolicy("uniform", strategy={"kind": "uniform"}),
    SelectionPolicy("class-balanced", strategy={"kind": "balanced", "by": "label", "filling": "exact", "weights": "equal"}),
    SelectionPolicy("RS2", downsampling=_whole_set("rs2")),
    SelectionPolicy("RS2 w/o replacement", downsampling=_whole_set("rs2_without_replacement")),
    SelectionPolicy("loss", downsampling=_batches("loss")),
    # The paper's implementation has no rule for the start.
    SelectionPolicy("DLIS", downsampling=_batches("dlis", start="always")),
    SelectionPolicy("margin", downsampling=_batches("margin")),
    SelectionPolicy("least confidence", downsampling=_batches("least_confidence")),
    SelectionPolicy("entropy", downsampling=_batches("entropy")),
)
#: What the paper leaves to later work.
MORE: Final = (
    SelectionPolicy("CRAIG", downsampling=_whole_set("craig")),
    SelectionPolicy("GradMatch", downsampling=_whole_set("gradmatch")),
    SelectionPolicy("RHO-LOSS", downsampling=_batches("rho")),
)
POLICIES: Final[Mapping[str, SelectionPolicy]] = {policy.name: policy for policy in (FULL, *NINE, *MORE)}
