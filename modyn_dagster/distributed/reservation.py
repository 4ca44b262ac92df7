"""Reservation of a run: one claim on its machine while it computes, and the GPUs it may see.

A run reserves everything at the same time, and nothing while it holds something: two runs that each waited for what the other
one has would wait for ever. Runs that a cluster placed reserve nothing here, as the cluster has chosen a node with room.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from modyn_dagster.distributed.machine import Machine
from modyn_dagster.distributed.protocols import Resources

#: Set in the processes of runs that a cluster placed.
PLACED: Final = "MODYN_PLACED"
_VISIBLE: Final = "CUDA_VISIBLE_DEVICES"


@dataclass(slots=True)
class _Process:
    """GPUs that this process has used: CUDA sees no others from then on."""

    gpus: tuple[str, ...] = ()


_PROCESS: Final = _Process()


@contextmanager
def reserved(wanted: Resources | None, work: str, say: Callable[[str], object]) -> Iterator[None]:
    """Wait until this machine has room for a run, and keep its share of it meanwhile.

    With GPUs, ``CUDA_VISIBLE_DEVICES`` names those that were granted; without, it stays as it is. A process that has used CUDA
    waits for the GPUs that it used.

    Args:
        wanted: share of the machine; None for none.
        work: names the run for those that wait for it.
        say: called with a line if there is a wait.

    Raises:
        NoRoom: the machine is too small, also when nothing else runs.
    """
    if wanted is None or os.environ.get(PLACED):
        yield
        return
    machine = Machine.here()
    if _PROCESS.gpus:
        machine = replace(machine, gpus=_PROCESS.gpus)
    claim, visible = machine.claim(wanted, work, say), os.environ.get(_VISIBLE)
    try:
        if claim.gpus:
            os.environ[_VISIBLE] = ",".join(claim.gpus)
        yield
    finally:
        if claim.gpus and _uses_cuda():
            _PROCESS.gpus = claim.gpus
        if visible is not None:
            os.environ[_VISIBLE] = visible
        else:
            os.environ.pop(_VISIBLE, None)
        claim.release()


def _uses_cuda() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())
