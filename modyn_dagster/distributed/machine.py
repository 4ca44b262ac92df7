"""Claims on the cores, GPUs and memory of this machine: runs that reserve some wait for each other, in order of arrival.

A claim is a file below one folder per machine and account, locked by its process as long as that lives. A killed process thus
leaves nothing behind. A claim is granted once what it wants fits beside what all earlier ones want, granted or not, so none waits
for ever; of what it does not want, others may wait for as much as they like.
"""

import fcntl
import json
import os
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import psutil

from modyn_dagster.distributed.protocols import Resources
from modyn_dagster.errors import ConfigError, NoRoom

#: Folder of the claims; containers of one account that share GPUs name one that all of them see.
_FOLDER: Final = "MODYN_CLAIMS"
#: Number of GPUs, or their names as in ``CUDA_VISIBLE_DEVICES``, where torch is not to be asked.
_GPUS: Final = "MODYN_GPUS"
_VISIBLE: Final = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class Machine:
    """Cores, GPUs and memory of a machine, and the folder of the claims on them.

    Attributes:
        folder: where claims are kept.
        cpus: number of cores.
        gpus: names of the GPUs, as ``CUDA_VISIBLE_DEVICES`` has them.
        memory: bytes.
        look_seconds: interval between two looks of a claim that waits.
    """

    folder: Path
    cpus: int
    gpus: tuple[str, ...]
    memory: int
    look_seconds: float = 0.25

    @classmethod
    def here(cls) -> Self:
        """Return this machine as far as this process may use it.

        Raises:
            ConfigError: the folder of claims belongs to somebody else, or ``MODYN_GPUS`` is no number or list.
        """
        cores = len(os.sched_getaffinity(0))
        return cls(_claims_folder(), cores, visible_gpus(), psutil.virtual_memory().total)

    def claim(self, wanted: Resources, work: str, say: Callable[[str], object]) -> "Claim":
        """Wait until the machine has room, and return the claim.

        Args:
            wanted: cores, GPUs and bytes.
            work: names the claim for those who wait for it.
            say: called once if there is a wait.

        Raises:
            NoRoom: the machine is too small, also when nothing else runs.
        """
        self._require(wanted, work)
        claim = self._register(wanted, work)
        try:
            told = False
            while not self._grant(claim):
                if not told:
                    say(f"{work} waits for {_text(wanted)} of this machine, which others have: {self._others(claim)}")
                    told = True
                time.sleep(self.look_seconds)
        except BaseException:
            claim.release()
            raise
        return claim

    def _require(self, wanted: Resources, work: str) -> None:
        has = Resources(self.cpus, len(self.gpus), self.memory)
        if wanted.cpus > has.cpus or wanted.gpus > has.gpus or wanted.memory > has.memory:
            raise NoRoom(work, _text(wanted), f"this machine ({socket.gethostname()}) has {_text(has)}")

    def _register(self, wanted: Resources, work: str) -> "Claim":
        with _alone(self.folder):
            order = 1 + max((each.order for each in self._living()), default=0)
            path = self.folder / f"{order:012d}.claim"
            # Not inherited by programs that this process starts: the lock ends with this process.
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            claim = Claim(path, descriptor, order, wanted, work)
            claim.write()
            return claim

    def _grant(self, claim: "Claim") -> bool:
        with _alone(self.folder):
            living = self._living()
            earlier = [each for each in living if each.order < claim.order]
            for kind, there_is in {"cpus": self.cpus, "gpus": len(self.gpus), "memory": self.memory}.items():
                wanted = getattr(claim.wanted, kind)
                if wanted and wanted + sum(getattr(each.wanted, kind) for each in earlier) > there_is:
                    return False
            # Also of later claims, granted beside this one before it looked.
            taken = {name for each in living for name in each.gpus}
            free = [name for name in self.gpus if name not in taken]
            if len(free) < claim.wanted.gpus:
                return False
            claim.gpus = tuple(free[: claim.wanted.gpus])
            claim.write()
            return True

    def _others(self, claim: "Claim") -> str:
        with _alone(self.folder):
            return ", ".join(f"{each.work} ({_text(each.wanted)})" for each in self._living() if each.order < claim.order)

    def _living(self) -> "list[Claim]":
        """Claims of living processes, by order; those of dead ones are removed."""
        found = []
        for path in sorted(self.folder.glob("*.claim")):
            with path.open("r+b") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    found.append(Claim.read(path, file.read()))
                else:
                    path.unlink()
        return found


@dataclass(slots=True)
class Claim:
    """Claim of a process, in its file; ``descriptor`` is -1 for those of others.

    Attributes:
        path, descriptor: the locked file.
        order: claims are granted by it.
        wanted: cores, GPUs and bytes.
        work: names the claim.
        gpus: names of the GPUs that were granted.
    """

    path: Path
    descriptor: int
    order: int
    wanted: Resources
    work: str
    gpus: tuple[str, ...] = field(default=())

    @classmethod
    def read(cls, path: Path, text: bytes) -> Self:
        """Parse the claim of another process."""
        content: dict[str, Any] = json.loads(text)
        return cls(path, -1, int(path.stem), Resources(**content["wanted"]), content["work"], tuple(content["gpus"]))

    def write(self) -> None:
        """Write the file for others to read."""
        content = json.dumps({"wanted": asdict(self.wanted), "work": self.work, "gpus": self.gpus}).encode()
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, content, 0)

    def release(self) -> None:
        """End the claim."""
        with _alone(self.path.parent):
            self.path.unlink(missing_ok=True)
            os.close(self.descriptor)


def visible_gpus() -> tuple[str, ...]:
    """Names of the GPUs of this process: those of ``MODYN_GPUS``, of ``CUDA_VISIBLE_DEVICES``, or all that torch counts.

    Raises:
        ConfigError: ``MODYN_GPUS`` is neither a number nor a list of names.
    """
    setting = os.environ.get(_GPUS, "").strip()
    if setting.isdecimal():
        return tuple(map(str, range(int(setting))))
    named = setting or os.environ.get(_VISIBLE)
    if named is None:
        import torch

        return tuple(map(str, range(torch.cuda.device_count())))
    names = tuple(name.strip() for name in named.split(",") if name.strip())
    if setting and (not names or len(set(names)) < len(names)):
        raise ConfigError(
            "environment", _GPUS, setting, "must be a number of GPUs, or different names as in CUDA_VISIBLE_DEVICES"
        )
    return names


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let one process at a time read and change the claims of a folder."""
    with (folder / "lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _claims_folder() -> Path:
    shared = os.environ.get(_FOLDER)
    if shared:
        Path(shared).mkdir(parents=True, exist_ok=True)
        return Path(shared)
    folder = Path(tempfile.gettempdir()) / f"modyn-claims-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    # Anybody may make a folder of that name there.
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        rule = "the default folder of claims belongs to somebody else; name another one"
        raise ConfigError("environment", _FOLDER, str(folder), rule)
    return folder


def _text(resources: Resources) -> str:
    parts = [f"{resources.cpus} CPUs", f"{resources.gpus} GPUs"]
    return ", ".join([*parts, f"{resources.memory / 1e9:.3g} GB memory"] if resources.memory else parts)
