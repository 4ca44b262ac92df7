"""The environment of a computation: libraries, processor, device and threads, as far as they can change a bit of its result."""

import platform
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache
from typing import Any, Final, Self

import numpy as np
import torch


def environment_facts(device: torch.device) -> dict[str, str]:
    """Versions of the interpreter and the numeric libraries, the kind of processor, and the device with its libraries."""
    on_gpu = device.type == "cuda"
    return {
        "python": sys.version.split()[0],
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "machine": f"{platform.system()} {platform.machine()}",
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "device": torch.cuda.get_device_name(device) if on_gpu else "cpu",
        "cuda": str(torch.version.cuda or "") if on_gpu else "",
        "cudnn": str(torch.backends.cudnn.version() or "") if on_gpu else "",  # type: ignore[no-untyped-call]  # torch has no type for it
    }


#: Largest numbers of an environment: retraining starts as many threads, and a file must not ask for a billion.
_NUMBERS: Final[Mapping[str, int]] = {"threads": 4096, "ranks": 4096}


@dataclass(frozen=True, slots=True)
class Environment:
    """Facts about a process that decide the bits of a training, besides its code, data and seed.

    The numbers of threads and of ranks belong to them: sums over other numbers of them are rounded differently.
    """

    python: str
    torch: str
    numpy: str
    machine: str
    processor: str
    cpu_capability: str
    blas: str
    threads: int
    device: str
    cuda: str
    cudnn: str
    ranks: int = 1

    @classmethod
    def now(cls) -> Self:
        """The environment of this process."""
        facts: dict[str, Any] = _process_facts()
        return cls(threads=torch.get_num_threads(), **facts)

    @classmethod
    def parse(cls, content: object) -> Self:
        """Inverse of ``to_json``. Raises ``ValueError`` for anything else."""
        names = {field.name for field in fields(cls)}
        if not isinstance(content, dict) or set(content) | {"ranks"} != names:
            raise ValueError(f"an environment has the fields {', '.join(sorted(names))}")
        for name in names & set(content):
            if name not in _NUMBERS and not isinstance(content[name], str):
                raise ValueError("the fields of an environment are texts, and threads and ranks are numbers")
            if name in _NUMBERS and (type(content[name]) is not int or not 1 <= content[name] <= _NUMBERS[name]):
                raise ValueError(f"the {name} of an environment are 1 to {_NUMBERS[name]}")
        return cls(**content)

    def to_json(self) -> dict[str, Any]:
        """All fields by name. The number of ranks is left out for one process, as it was before there were ranks."""
        return {name: value for name, value in asdict(self).items() if (name, value) != ("ranks", 1)}

    def differences(self, other: "Environment") -> Mapping[str, tuple[object, object]]:
        """Fields that differ: name to (value of this one, value of ``other``)."""
        mine, others = asdict(self), asdict(other)
        return {name: (value, others[name]) for name, value in mine.items() if value != others[name]}


@cache
def _process_facts() -> dict[str, str]:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return {
        **environment_facts(device),
        "processor": _processor(),
        "blas": "mkl" if torch.backends.mkl.is_available() else "other",  # type: ignore[no-untyped-call]
        "cuda": str(torch.version.cuda or ""),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            lines = [line for line in file if line.startswith("model name")]
    except OSError:
        lines = []
    return lines[0].partition(":")[2].strip() if lines else platform.processor()
