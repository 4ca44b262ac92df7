"""What one run of a model computed, call by call, as hashes: small enough to be taken to another machine."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Self

from torch import Tensor

from modyn_dagster.errors import CorruptFile
from modyn_dagster.model_store.environment import Environment
from modyn_dagster.model_store.hash_tree import Hashing
from modyn_dagster.storage import atomic_file

Phase = Literal["forward", "training"]
Loss = Callable[[Any], Tensor]

_MAX_BYTES: Final = 256 << 20


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a layer: hashes of everything that went in, came out, and flowed back into its inputs."""

    phase: Phase
    layer: str
    kind: str
    #: How many calls of the same layer in the same phase came before.
    number: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    gradients: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Summary:
    """All calls of one run, the state and gradients of the parameters after it, and where it ran."""

    calls: tuple[Call, ...]
    parameters: Mapping[str, str]
    environment: Environment

    def save(self, path: Path) -> None:
        """Write JSON, to be compared with a run on another machine."""
        content = {
            "calls": [[getattr(call, name) for name in Call.__dataclass_fields__] for call in self.calls],
            "parameters": dict(self.parameters),
            "environment": self.environment.to_json(),
            "hashing": Hashing.BLAKE3,
        }
        with atomic_file(path) as file:
            file.write(json.dumps(content).encode())

    @classmethod
    def load(cls, path: Path) -> Self:
        """The inverse. ``CorruptFile`` for anything else."""
        with open(path, "rb") as file:
            text = file.read(_MAX_BYTES)
        try:
            content = json.loads(text)
            if content.get("hashing") != Hashing.BLAKE3:
                raise ValueError("hashes of an earlier version; probe again there")
            calls = tuple(_call(row) for row in content["calls"])
            return cls(calls, dict(content["parameters"]), Environment.parse(content["environment"]))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise CorruptFile(path, "the summary of a probe", f"{type(error).__name__}: {error}") from error


def _call(row: Any) -> Call:
    phase, layer, kind, number, *hashes = row
    if phase not in ("forward", "training") or type(number) is not int or len(hashes) != 3:
        raise ValueError(f"{str(row)[:100]} is no call")
    return Call(phase, str(layer), str(kind), number, *(tuple(map(str, each)) for each in hashes))
