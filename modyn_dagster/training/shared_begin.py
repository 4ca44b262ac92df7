"""Where the iterations of a dataset begin, for a loader and all its workers."""

from typing import Final

import torch

_MASK: Final = (1 << 62) - 1


class SharedBegin:
    """Epoch and position at which an iteration begins, in memory that forked and spawned workers share.

    A position that was set is for one iteration; later ones begin at 0. Only workers know that an iteration begins, and
    several of them begin it, so the first writes down which one it is, and the others find that it is theirs.
    """

    def __init__(self, epoch: int, position: int) -> None:
        # Epoch, position, and the iteration that begins there (0: the next one, whichever it is).
        self._values = torch.tensor([epoch, position, 0], dtype=torch.int64)
        self._values.share_memory_()  # type: ignore[no-untyped-call]  # torch has no type for it
        self._n_entered = 0

    def read(self) -> dict[str, int]:
        """``epoch`` and ``position``: of the iteration that runs, or of the next one if none has begun since they were set."""
        epoch, position, _ = self._values.tolist()
        return {"epoch": epoch, "position": position}

    def set(self, epoch: int, position: int) -> None:
        """For the next iteration."""
        self._values.copy_(torch.tensor([epoch, position, 0]))

    def set_epoch(self, epoch: int) -> None:
        """Go to the beginning of another epoch; the same one changes nothing."""
        if epoch != int(self._values[0]):
            self.set(epoch, 0)

    def rewind(self) -> None:
        """The iteration has ended: what follows begins at 0."""
        self._values[1] = 0

    def enter(self, loader: int | None) -> None:
        """An iteration begins in this process; ``loader``: a number that the workers of a loader have in common, if it is one."""
        self._n_entered += 1
        # Workers that stay have entered equally often; fresh ones have a loader with another number.
        iteration = 1 + ((0 if loader is None else loader) + self._n_entered) % _MASK
        begun = int(self._values[2])
        if begun not in (0, iteration):
            # Before the iteration's number: who finds that finds this.
            self._values[1] = 0
        self._values[2] = iteration
