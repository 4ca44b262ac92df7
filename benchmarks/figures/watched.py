"""Programs that are run side by side: their wall time, and the seconds in which they waited for a processor."""

import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

#: Seconds between two looks at the processes.
_LOOK: Final = 0.2


@dataclass(frozen=True, slots=True)
class Watched:
    """Programs that ran at the same time.

    Attributes:
        wall: seconds from their start to the end of the last one.
        waited: seconds in which a program was ready to run and had no processor, and those of the one of its children that waited
            longest, which computes for it; of the program that waited longest.
    """

    wall: float
    waited: float

    @property
    def undisturbed(self) -> float:
        """Wall time without these waits: an estimate of that on a quiet machine, and never more than the wall time."""
        return self.wall - self.waited


def watched(commands: Sequence[Sequence[str]], environment: Mapping[str, str]) -> Watched:
    """Run programs at the same time and watch them. ``RuntimeError`` when one fails."""
    delays: dict[int, dict[int, float]] = {}
    begun = time.perf_counter()
    running = [subprocess.Popen(command, env=environment) for command in commands]
    alive = list(running)
    while alive:
        for process in running:
            delays.setdefault(process.pid, {}).update(_delays(process.pid))
        time.sleep(_LOOK)
        alive = [process for process in running if process.poll() is None]
    wall = time.perf_counter() - begun
    if any(process.returncode for process in running):
        raise RuntimeError("a program of the benchmark failed")
    return Watched(wall, max(_waited(pid, seconds) for pid, seconds in delays.items()))


def _waited(pid: int, seconds: Mapping[int, float]) -> float:
    own = seconds.get(pid, 0.0)
    return own + max((value for other, value in seconds.items() if other != pid), default=0.0)


def _delays(pid: int) -> dict[int, float]:
    """Seconds that the main threads of a process and its children have waited for a processor so far."""
    found = {}
    with suppress(psutil.Error, OSError):
        for each in [pid, *(child.pid for child in psutil.Process(pid).children())]:
            with suppress(OSError):
                found[each] = int(Path(f"/proc/{each}/schedstat").read_text().split()[1]) / 1e9
    return found
