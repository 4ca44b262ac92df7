"""Two runs of a model side by side: the first thing that is not the same."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from modyn_dagster.errors import StorageError
from modyn_dagster.model_store.probe_summary import Call, Phase, Summary

#: Columns of the table, in the order in which a difference spreads through a call.
FIELDS: Final = ("inputs", "outputs", "gradients")


@dataclass(frozen=True, slots=True)
class Difference:
    """The first thing that is not the same in both runs: a field of a call, or of a parameter after the training step."""

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


def compare(one: Summary, other: Summary) -> Report:
    """Call by call; ``StorageError`` when the runs did not even call the same layers."""
    shape = [[(c.phase, c.layer, c.kind, c.number) for c in run.calls] for run in (one, other)]
    if shape[0] != shape[1] or set(one.parameters) != set(other.parameters):
        raise StorageError("the two runs call different layers: they are not runs of the same model")
    rows = [
        (here, {name: getattr(here, name) == getattr(there, name) for name in FIELDS})
        for here, there in zip(one.calls, other.calls, strict=True)
    ]
    environment = one.environment.differences(other.environment)
    return Report(tuple(rows), _first(rows) or _first_parameter(one, other), environment)


def _first(rows: Sequence[tuple[Call, Mapping[str, bool]]]) -> Difference | None:
    ahead = [(call, name) for name in ("inputs", "outputs") for call, same in rows if not same[name]]
    order = {id(call): place for place, (call, _) in enumerate(rows)}
    forward = min(ahead, key=lambda pair: (order[id(pair[0])], FIELDS.index(pair[1])), default=None)
    # Gradients flow from the last call to the first.
    backward = next(((call, "gradients") for call, same in reversed(rows) if not same["gradients"]), None)
    found = forward or backward
    return None if found is None else Difference(found[0].phase, found[0].layer, found[0].kind, found[0].number, found[1])


def _first_parameter(one: Summary, other: Summary) -> Difference | None:
    for name, found in one.parameters.items():
        if other.parameters[name] != found:
            what, _, parameter = name.partition(" of ")
            return Difference("training", parameter, "parameter", 0, what)
    return None
