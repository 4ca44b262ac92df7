"""Report of a probe: hashes of a run, call by call, saved for another machine, and the first difference of two runs."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Self

from torch import Tensor

from modyn_dagster.environment import Environment
from modyn_dagster.errors import CorruptFile, StorageError
from modyn_dagster.model_store.format.hash_tree import Hashing
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


#: Columns of the table, in the order in which a difference spreads through a call.
FIELDS: Final = ("inputs", "outputs", "gradients")


@dataclass(frozen=True, slots=True)
class Difference:
    """The first thing that is not the same in both runs.

    ``field`` of a call, ``calls`` where one run makes this call and the other one makes another, or what of a parameter after the
    training step.
    """

    phase: Phase
    layer: str
    kind: str
    number: int
    field: str


@dataclass(frozen=True, slots=True)
class Report:
    """What a probe found."""

    rows: tuple[tuple[Call, Mapping[str, bool]], ...]
    first: Difference | None
    environment: Mapping[str, tuple[object, object]] = field(default_factory=dict)

    @property
    def is_safe(self) -> bool:
        """Whether every bit was the same: the model can be stored as its provenance."""
        return self.first is None

    def table(self) -> Sequence[Sequence[str]]:
        """A header and a line per call: ``same`` or ``DIFFERENT`` for inputs, outputs and gradients."""
        lines = [["phase", "layer", "kind", "call", *FIELDS]]
        for call, same in self.rows:
            marks = ["same" if same[name] else "DIFFERENT" for name in FIELDS]
            lines.append([call.phase, call.layer, call.kind, str(call.number), *marks])
        return lines


def compare(one: Summary, other: Summary, *, same_model: bool = False) -> Report:
    """Call by call, as long as both runs call the same layers.

    Where they do not, that is a difference of ``same_model``, and a ``StorageError`` otherwise.
    """
    calls = list(zip(one.calls, other.calls, strict=False))
    n_same = next((n for n, (here, there) in enumerate(calls) if _what(here) != _what(there)), len(calls))
    are_same = n_same == len(one.calls) == len(other.calls)
    if not same_model and (not are_same or set(one.parameters) != set(other.parameters)):
        raise StorageError("the two runs call different layers: they are not runs of the same model")
    rows = [(here, {name: getattr(here, name) == getattr(there, name) for name in FIELDS}) for here, there in calls[:n_same]]
    diverging = None if are_same else _difference([*one.calls, *other.calls[n_same:]][n_same], "calls")
    first = _forward(rows) or diverging or _backward(rows) or _first_parameter(one, other)
    return Report(tuple(rows), first, one.environment.differences(other.environment))


def _what(call: Call) -> tuple[object, ...]:
    return call.phase, call.layer, call.kind, call.number


def _difference(call: Call, name: str) -> Difference:
    return Difference(call.phase, call.layer, call.kind, call.number, name)


def _forward(rows: Sequence[tuple[Call, Mapping[str, bool]]]) -> Difference | None:
    return next((_difference(call, name) for call, same in rows for name in ("inputs", "outputs") if not same[name]), None)


def _backward(rows: Sequence[tuple[Call, Mapping[str, bool]]]) -> Difference | None:
    # Gradients flow from the last call to the first.
    return next((_difference(call, "gradients") for call, same in reversed(rows) if not same["gradients"]), None)


def _first_parameter(one: Summary, other: Summary) -> Difference | None:
    for name in dict.fromkeys([*one.parameters, *other.parameters]):
        if one.parameters.get(name) != other.parameters.get(name):
            what, _, parameter = name.partition(" of ")
            return Difference("training", parameter, "parameter", 0, what)
    return None
