"""Environment of a record: processor and libraries, which decide bits, and the JSON Schemas, which depend on neither."""

import hashlib
import json
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch


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
    """SHA-256 of every schema that ``modyn-dagster schema`` writes, without its descriptions: words may change, rules not."""
    command = Path(sys.executable).with_name("modyn-dagster")
    subprocess.run([command, "schema", "--output", str(folder)], check=True, stdout=subprocess.DEVNULL)
    return {path.name: _rules_digest(json.loads(path.read_text(encoding="utf-8"))) for path in sorted(folder.iterdir())}


def _rules_digest(schema: object) -> str:
    return hashlib.sha256(json.dumps(_without_descriptions(schema), sort_keys=True).encode()).hexdigest()


def _without_descriptions(value: object) -> object:
    if isinstance(value, dict):
        # A property may be named "description": its value is a schema, not a text.
        kept = {key: each for key, each in value.items() if key != "description" or not isinstance(each, str)}
        return {key: _without_descriptions(each) for key, each in kept.items()}
    return [_without_descriptions(each) for each in value] if isinstance(value, list) else value


def _processor() -> str:
    """Model of the first processor, as Linux names it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
