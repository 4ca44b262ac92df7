"""Files beside a checkpoint, written before the first step. This module needs no torch."""

from typing import Final, Literal

Part = Literal["0", "1"]
#: Suffixes of checkpoint names: trainings of the models behind irreducible losses, and these losses.
TRAINING: Final[dict[Part, str]] = {"0": ".model0", "1": ".model1"}
LOSSES: Final[dict[Part, str]] = {"0": ".losses0", "1": ".losses1"}
SUFFIXES: Final = (*TRAINING.values(), *LOSSES.values())
