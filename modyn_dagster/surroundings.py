"""Facts of this process that decide bits beside code, data and seed; who records which of them says so itself."""

import platform
import sys

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
