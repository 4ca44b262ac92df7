"""What a machine is, as far as it decides bits of models and scores; and the JSON Schemas, which no machine decides."""

import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from tests.golden.facts import sha256_of


def environment() -> dict[str, str]:
    """Processor and libraries: weights, predictions and scores are comparable where all of it is equal."""
    return {
        "python": platform.python_version(),
        "libc": " ".join(platform.libc_ver()),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "processor": _processor(),
        "capability": torch.backends.cpu.get_cpu_capability(),
    }


def schemas(folder: Path) -> dict[str, str]:
    """The SHA-256 of every schema that ``modyn-dagster schema`` writes."""
    command = Path(sys.executable).with_name("modyn-dagster")
    subprocess.run([command, "schema", "--output", str(folder)], check=True, stdout=subprocess.DEVNULL)
    return {path.name: sha256_of(path) for path in sorted(folder.iterdir())}


def _processor() -> str:
    """The model of the first processor, as Linux names it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
