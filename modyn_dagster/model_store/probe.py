"""Whether a model computes the same bits twice, and if not, the first layer that does not.

After the probe of MMlib (EDBT 2022, section 4.3), with an entry per call of a layer, so that a module used twice keeps both.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Self

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from modyn_dagster.errors import CorruptFile, StorageError
from modyn_dagster.model_store.determinism import deterministic
from modyn_dagster.model_store.environment import Environment
from modyn_dagster.model_store.hash_tree import leaf_hash
from modyn_dagster.model_store.tensor_bytes import bytes_of
from modyn_dagster.storage import atomic_file

Phase = Literal["forward", "training"]
Loss = Callable[[Any], Tensor]

#: Columns of the table, in the order in which a difference spreads through a call.
FIELDS: Final = ("inputs", "outputs", "gradients")
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
            calls = tuple(_call(row) for row in content["calls"])
            return cls(calls, dict(content["parameters"]), Environment.parse(content["environment"]))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise CorruptFile(path, "the summary of a probe", f"{type(error).__name__}: {error}") from error


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


def probe(
    build: Callable[[], nn.Module],
    inputs: tuple[Any, ...],
    loss: Loss,
    *,
    seed: int = 0,
    threads: int | None = None,
    against: Summary | None = None,
    fixed: bool = True,
) -> Report:
    """Run a forward pass and a training step twice, or once and compare with a saved summary.

    Args:
        build: makes the module; called within the seeded stretch, so equal seeds give equal weights.
        inputs: arguments of the module.
        loss: of what the module returns; a number to go downhill on.
        seed: of every generator.
        threads: to compute with; None: as many as torch uses.
        against: a run of before, perhaps on another machine.
        fixed: only deterministic algorithms, as in a training that is repeated; an operation without one raises.
    """
    first = summarise(build, inputs, loss, seed=seed, threads=threads, fixed=fixed) if against is None else against
    return compare(first, summarise(build, inputs, loss, seed=seed, threads=threads, fixed=fixed))


def summarise(
    build: Callable[[], nn.Module],
    inputs: tuple[Any, ...],
    loss: Loss,
    *,
    seed: int = 0,
    threads: int | None = None,
    fixed: bool = True,
) -> Summary:
    """One forward pass in evaluation mode and one training step (loss, backward, plain gradient descent), call by call."""
    with deterministic(seed, threads or torch.get_num_threads()):
        torch.use_deterministic_algorithms(fixed)
        environment = Environment.now()
        module = build()
        calls: list[Call] = []
        module.eval()
        with torch.no_grad(), _recorded(module, "forward", calls, {}):
            module(*inputs)
        module.train()
        gradients: dict[int, tuple[str, ...]] = {}
        started = len(calls)
        with _recorded(module, "training", calls, gradients):
            loss(module(*inputs)).backward()  # type: ignore[no-untyped-call]
        for place in range(started, len(calls)):
            calls[place] = _with_gradients(calls[place], gradients.get(place, ()))
        parameters = {f"gradient of {name}": _hashes(p.grad) for name, p in module.named_parameters()}
        with torch.no_grad():
            for parameter in module.parameters():
                if parameter.grad is not None:
                    parameter.sub_(0.01 * parameter.grad)
        parameters |= {f"value of {name}": _hashes(value) for name, value in module.state_dict().items()}
    return Summary(tuple(calls), {name: " ".join(found) for name, found in parameters.items()}, environment)


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


@contextmanager
def _recorded(module: nn.Module, phase: Phase, calls: list[Call], gradients: dict[int, tuple[str, ...]]) -> Iterator[None]:
    """Append a call for each call of a layer without layers of its own, and of the whole module."""
    counts: dict[str, int] = {}
    handles: list[RemovableHandle] = []
    for name, layer in module.named_modules():
        if name and any(True for _ in layer.children()):
            continue
        hook = _hook(name or "(model)", phase, calls, counts, gradients)
        handles.append(layer.register_forward_hook(hook, with_kwargs=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _hook(
    name: str, phase: Phase, calls: list[Call], counts: dict[str, int], gradients: dict[int, tuple[str, ...]]
) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any], Any], None]:
    def record(layer: nn.Module, inputs: tuple[Any, ...], more: dict[str, Any], outputs: Any) -> None:
        place = len(calls)
        number = counts[name] = counts.get(name, -1) + 1
        calls.append(Call(phase, name, type(layer).__name__, number, _hashes((inputs, more)), _hashes(outputs)))
        for tensor in _tensors(outputs):
            if tensor.requires_grad:
                tensor.register_hook(lambda gradient: _keep(gradients, place, gradient))  # type: ignore[no-untyped-call]

    return record


def _keep(gradients: dict[int, tuple[str, ...]], place: int, gradient: Tensor) -> None:
    gradients[place] = (*gradients.get(place, ()), *_hashes(gradient))


def _with_gradients(call: Call, found: tuple[str, ...]) -> Call:
    return Call(call.phase, call.layer, call.kind, call.number, call.inputs, call.outputs, found)


def _hashes(value: object) -> tuple[str, ...]:
    return tuple(leaf_hash(t.dtype, t.shape, bytes_of(t.detach())) for t in _tensors(value))


def _tensors(value: object) -> Iterator[Tensor]:
    match value:
        case Tensor():
            yield value
        case Mapping():
            for part in value.values():
                yield from _tensors(part)
        case list() | tuple():
            for part in value:
                yield from _tensors(part)


def _call(row: Any) -> Call:
    phase, layer, kind, number, *hashes = row
    if phase not in ("forward", "training") or type(number) is not int or len(hashes) != 3:
        raise ValueError(f"{str(row)[:100]} is no call")
    return Call(phase, str(layer), str(kind), number, *(tuple(map(str, each)) for each in hashes))
