"""Devices that specs name: ``cpu``, ``cuda``, one GPU by its number, or ``auto``.

The kind of a device belongs to a run's identity, since bits depend on it. The number of a GPU does not: it only says which of
several equal ones computes, and a checkpoint goes on on another one. What differs between GPUs is in the environment that is
recorded with every model and checkpoint: their names and libraries.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Any, Final

from pydantic import Field, StringConstraints

_NUMBERED: Final = re.compile(r"cuda:[0-9]{1,3}")
#: Settings of user code, whose words are its own.
_FOREIGN: Final = "config"

Device = Annotated[
    str,
    StringConstraints(pattern=rf"^(cpu|auto|cuda|{_NUMBERED.pattern})$"),
    Field(description="`cpu`, `cuda`, `cuda:1` (the GPU with this number, from 0), or `auto`: CUDA where there is one."),
]


def without_number(content: Any) -> Any:
    """Copy of a spec as JSON, with every numbered GPU as ``cuda``: the part of it that identifies a run.

    >>> without_number({"training": {"device": "cuda:1", "epochs": 1}})
    {'training': {'device': 'cuda', 'epochs': 1}}
    """
    if isinstance(content, list):
        return [without_number(part) for part in content]
    if not isinstance(content, dict):
        return content
    return {name: part if name == _FOREIGN else _of_field(name, part) for name, part in content.items()}


def devices_in(content: Any, field: str = "") -> Iterator[tuple[str, str]]:
    """Fields of a spec as JSON that name a device, and the device.

    >>> list(devices_in({"training": {"device": "cuda:1", "loss": {"config": {"device": "theirs"}}}}))
    [('training.device', 'cuda:1')]
    """
    if isinstance(content, list):
        for number, part in enumerate(content):
            yield from devices_in(part, f"{field}[{number}]")
    if not isinstance(content, dict):
        return
    for name, part in content.items():
        place = f"{field}.{name}" if field else str(name)
        if name == "device" and isinstance(part, str):
            yield place, part
        elif name != _FOREIGN:
            yield from devices_in(part, place)


def _of_field(name: str, part: Any) -> Any:
    if name == "device" and isinstance(part, str) and _NUMBERED.fullmatch(part):
        return "cuda"
    return without_number(part)
