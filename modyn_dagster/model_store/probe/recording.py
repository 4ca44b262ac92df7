"""Recording of a run: a forward pass and a training step, with hashes of every layer's inputs, outputs and gradients."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from modyn_dagster.determinism import reproducible
from modyn_dagster.environment import Environment
from modyn_dagster.model_store.format.hash_tree import leaf_hash
from modyn_dagster.model_store.format.tensors import bytes_of
from modyn_dagster.model_store.probe.report import Call, Difference, Loss, Phase, Report, Summary, compare


@contextmanager
def recorded(module: nn.Module, phase: Phase, calls: list[Call], gradients: dict[int, tuple[str, ...]]) -> Iterator[None]:
    """Append a call for each call of a layer without layers of its own, and of the whole module."""
    counts: dict[str, int] = {}
    handles: list[RemovableHandle] = []
    for name, layer in module.named_modules():
        if name and any(True for _ in layer.children()):
            continue
        # Hashed before the call, which may write into its inputs; nested where a layer calls itself.
        inputs: list[tuple[str, ...]] = []
        handles.append(layer.register_forward_pre_hook(_before(inputs), with_kwargs=True))
        hook = _hook(name or "(model)", phase, calls, counts, gradients, inputs)
        handles.append(layer.register_forward_hook(hook))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _before(inputs: list[tuple[str, ...]]) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
    def note(_layer: nn.Module, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
        inputs.append(hashes((positional, named)))

    return note


def _hook(
    name: str,
    phase: Phase,
    calls: list[Call],
    counts: dict[str, int],
    gradients: dict[int, tuple[str, ...]],
    inputs: list[tuple[str, ...]],
) -> Callable[[nn.Module, tuple[Any, ...], Any], None]:
    def record(layer: nn.Module, _inputs: tuple[Any, ...], outputs: Any) -> None:
        place = len(calls)
        number = counts[name] = counts.get(name, -1) + 1
        calls.append(Call(phase, name, type(layer).__name__, number, inputs.pop(), hashes(outputs)))
        for tensor in _tensors(outputs):
            if tensor.requires_grad:
                tensor.register_hook(lambda gradient: _keep(gradients, place, gradient))  # type: ignore[no-untyped-call]

    return record


def _keep(gradients: dict[int, tuple[str, ...]], place: int, gradient: Tensor) -> None:
    gradients[place] = (*gradients.get(place, ()), *hashes(gradient))


def with_gradients(call: Call, found: tuple[str, ...]) -> Call:
    """The same call, and the hashes of what flowed back into its outputs."""
    return Call(call.phase, call.layer, call.kind, call.number, call.inputs, call.outputs, found)


def hashes(value: object) -> tuple[str, ...]:
    """Of every tensor in nested containers."""
    return tuple(leaf_hash(t.dtype, t.shape, bytes_of(t)) for found in _tensors(value) for t in _dense(found.detach()))


def _dense(tensor: Tensor) -> tuple[Tensor, ...]:
    """The parts of it that are dense: gradients of embeddings may be sparse."""
    if tensor.layout == torch.sparse_coo:
        return tensor._indices(), tensor._values()
    return (tensor,)


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


__all__ = ["Call", "Difference", "Loss", "Report", "Summary", "compare", "probe", "summarise"]


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
    second = summarise(build, inputs, loss, seed=seed, threads=threads, fixed=fixed)
    return compare(first, second, same_model=against is None)


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
    with reproducible(seed, threads=threads or torch.get_num_threads(), deterministic=fixed), torch.enable_grad():
        environment = Environment.now()
        module = build()
        calls: list[Call] = []
        module.eval()
        with torch.no_grad(), recorded(module, "forward", calls, {}):
            module(*inputs)
        module.train()
        gradients: dict[int, tuple[str, ...]] = {}
        started = len(calls)
        with recorded(module, "training", calls, gradients):
            downhill = loss(module(*inputs))
            # A model may have nothing to train.
            if downhill.requires_grad:
                downhill.backward()  # type: ignore[no-untyped-call]
        for place in range(started, len(calls)):
            calls[place] = with_gradients(calls[place], gradients.get(place, ()))
        parameters = {f"gradient of {name}": hashes(p.grad) for name, p in module.named_parameters()}
        with torch.no_grad():
            for parameter in module.parameters():
                if parameter.grad is not None:
                    parameter.sub_(0.01 * parameter.grad)
        parameters |= {f"value of {name}": hashes(value) for name, value in module.state_dict().items()}
    return Summary(tuple(calls), {name: " ".join(found) for name, found in parameters.items()}, environment)
