"""Report of a probe: call-by-call hashes of a run, saved for another machine, and the first difference of two runs."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Self

from torch import Tensor

from modyn_dagster.errors import CorruptFile, StorageError
from modyn_dagster.model_store.format.hash_tree import HASHING
from modyn_dagster.reproducibility.environment import Environment
from modyn_dagster.storage import atomic_file

Phase = Literal["forward", "training"]
Loss = Callable[[Any], Tensor]

_MAX_BYTES: Final = 256 << 20


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a layer: hashes of its inputs, its outputs, and the gradients of its outputs."""

    phase: Phase
    layer: str
    kind: str
    #: Number of earlier calls of the same layer in the same phase.
    number: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    gradients: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Summary:
    """All calls of one run, the state and gradients of the parameters after it, and its environment."""

    calls: tuple[Call, ...]
    parameters: Mapping[str, str]
    environment: Environment

    def save(self, path: Path) -> None:
        """Write JSON, for comparison with a run on another machine."""
        content = {
            "calls": [[getattr(call, name) for name in Call.__dataclass_fields__] for call in self.calls],
            "parameters": dict(self.parameters),
            "environment": self.environment.to_json(),
            "hashing": HASHING,
        }
        with atomic_file(path) as file:
            file.write(json.dumps(content).encode())

    @classmethod
    def load(cls, path: Path) -> Self:
        """Inverse of ``save``. ``CorruptFile`` for anything else."""
        with open(path, "rb") as file:
            text = file.read(_MAX_BYTES)
        try:
            content = json.loads(text)
            if content.get("hashing") != HASHING:
                raise ValueError(f"hashes other than {HASHING}; run the probe again")
            calls = tuple(_call(row) for row in content["calls"])
            return cls(calls, dict(content["parameters"]), Environment.parse(content["environment"]))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise CorruptFile(path, "the summary of a probe", f"{type(error).__name__}: {error}") from error


def _call(row: Any) -> Call:
    phase, layer, kind, number, *hashes = row
    if phase not in ("forward", "training") or type(number) is not int or len(hashes) != 3:
        raise ValueError(f"{str(row)[:100]} is no call")
    return Call(phase, str(layer), str(kind), number, *(tuple(map(str, digests)) for digests in hashes))


#: Columns of the table, in the order in which a difference spreads through a call.
FIELDS: Final = ("inputs", "outputs", "gradients")


@dataclass(frozen=True, slots=True)
class Difference:
    """First difference of two runs.

    ``field`` names a field of a call; ``calls`` where the runs call different layers; or the value or gradient of a parameter
    after the training step.
    """

    phase: Phase
    layer: str
    kind: str
    number: int
    field: str


@dataclass(frozen=True, slots=True)
class Report:
    """Result of a probe: each call with the fields that agree, the first difference, and differences of the environments."""

    rows: tuple[tuple[Call, Mapping[str, bool]], ...]
    first: Difference | None
    environment: Mapping[str, tuple[object, object]] = field(default_factory=dict)

    @property
    def is_safe(self) -> bool:
        """True if every bit was the same: then the model can be stored as its provenance."""
        return self.first is None

    def table(self) -> Sequence[Sequence[str]]:
        """Header, and a line per call: ``same`` or ``DIFFERENT`` for inputs, outputs and gradients."""
        lines = [["phase", "layer", "kind", "call", *FIELDS]]
        for call, same in self.rows:
            marks = ["same" if same[name] else "DIFFERENT" for name in FIELDS]
            lines.append([call.phase, call.layer, call.kind, str(call.number), *marks])
        return lines


def compare(one: Summary, other: Summary, *, same_model: bool = False) -> Report:
    """Compare two runs call by call, as long as both call the same layers.

    Calls of other layers are a difference of the ``same_model``, and otherwise a ``StorageError``.
    """
    calls = list(zip(one.calls, other.calls, strict=False))
    n_same = next((n for n, (left, right) in enumerate(calls) if _identity(left) != _identity(right)), len(calls))
    are_same = n_same == len(one.calls) == len(other.calls)
    if not same_model and (not are_same or set(one.parameters) != set(other.parameters)):
        raise StorageError("the two runs call different layers: they are not runs of the same model")
    rows = [(left, {name: getattr(left, name) == getattr(right, name) for name in FIELDS}) for left, right in calls[:n_same]]
    diverging = None if are_same else _difference([*one.calls, *other.calls[n_same:]][n_same], "calls")
    first = _forward(rows) or diverging or _backward(rows) or _first_parameter(one, other)
    return Report(tuple(rows), first, one.environment.differences(other.environment))


def _identity(call: Call) -> tuple[object, ...]:
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
            kind, _, parameter = name.partition(" of ")
            return Difference("training", parameter, "parameter", 0, kind)
    return None
