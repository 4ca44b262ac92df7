"""The environment of a computation: libraries, processor, device and threads, as far as they can change a bit of its result."""

import platform
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache
from typing import Any, Final, Self

import numpy as np
import torch


def libraries() -> dict[str, str]:
    """Versions of the interpreter and of what computes, and the kind of processor they compute on."""
    return {
        "python": sys.version.split()[0],
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "machine": f"{platform.system()} {platform.machine()}",
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }


def accelerator(device: torch.device) -> dict[str, str]:
    """Name of a device, and the libraries it works with; of the CPU, none."""
    if device.type != "cuda":
        return {"device": "cpu", "cuda": "", "cudnn": ""}
    return {
        "device": torch.cuda.get_device_name(device),
        "cuda": str(torch.version.cuda or ""),
        "cudnn": str(torch.backends.cudnn.version() or ""),  # type: ignore[no-untyped-call]  # torch has no type for it
    }


_MOST_THREADS: Final = 4096


@dataclass(frozen=True, slots=True)
class Environment:
    """What the bits of a training depend on beside its code, data and seed.

    The thread count is among it: sums over another number of threads are rounded otherwise.
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

    @classmethod
    def now(cls) -> Self:
        """Of this process."""
        return cls(threads=torch.get_num_threads(), **_constant())

    @classmethod
    def parse(cls, content: object) -> Self:
        """The inverse of ``to_json``; ``ValueError`` for anything else."""
        names = {field.name for field in fields(cls)}
        if not isinstance(content, dict) or set(content) != names:
            raise ValueError(f"an environment has the fields {', '.join(sorted(names))}")
        if type(content["threads"]) is not int or not all(isinstance(content[name], str) for name in names - {"threads"}):
            raise ValueError("the fields of an environment are texts, and threads a number")
        # So many are started when it is trained again: a file must not ask for a billion.
        if not 1 <= content["threads"] <= _MOST_THREADS:
            raise ValueError(f"the threads of an environment are 1 to {_MOST_THREADS}")
        return cls(**content)

    def to_json(self) -> dict[str, Any]:
        """All fields by name."""
        return asdict(self)

    def differences(self, other: "Environment") -> Mapping[str, tuple[object, object]]:
        """Field to (value here, value there), where they differ."""
        here, there = asdict(self), asdict(other)
        return {name: (value, there[name]) for name, value in here.items() if value != there[name]}


@cache
def _constant() -> dict[str, str]:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return {
        **libraries(),
        **accelerator(device),
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
