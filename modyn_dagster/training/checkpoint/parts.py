"""Files beside a checkpoint: of what a training finds out before its first step. Known without torch."""

from typing import Final, Literal

Part = Literal["0", "1"]
#: Put behind the name of a checkpoint: the training of a model of irreducible losses, and the losses that it gave.
TRAINING: Final[dict[Part, str]] = {"0": ".model0", "1": ".model1"}
LOSSES: Final[dict[Part, str]] = {"0": ".losses0", "1": ".losses1"}
SUFFIXES: Final = (*TRAINING.values(), *LOSSES.values())
