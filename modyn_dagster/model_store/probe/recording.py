"""Recording of a run: a forward pass and a training step, with hashes of every layer's inputs, outputs and gradients."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from modyn_dagster.model_store.format.hash_tree import leaf_hash
from modyn_dagster.model_store.format.tensors import bytes_of
from modyn_dagster.model_store.probe.report import Call, Loss, Phase, Report, Summary, compare
from modyn_dagster.reproducibility.determinism import reproducible
from modyn_dagster.reproducibility.environment import Environment


@contextmanager
def record_calls(module: nn.Module, phase: Phase, calls: list[Call], gradients: dict[int, tuple[str, ...]]) -> Iterator[None]:
    """Append a call for each call of a layer without sublayers, and of the whole module."""
    counts: dict[str, int] = {}
    handles: list[RemovableHandle] = []
    for name, layer in module.named_modules():
        if name and any(True for _ in layer.children()):
            continue
        # Hashed before the call, which may write into its inputs. A stack: a layer may call itself.
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
    def hash_inputs(_layer: nn.Module, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
        inputs.append(hashes((positional, named)))

    return hash_inputs


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


def hashes(value: object) -> tuple[str, ...]:
    """Hashes of all tensors in nested containers."""
    return tuple(leaf_hash(t.dtype, t.shape, bytes_of(t)) for tensor in _tensors(value) for t in _dense(tensor.detach()))


def _dense(tensor: Tensor) -> tuple[Tensor, ...]:
    """Dense parts of a tensor: gradients of embeddings may be sparse."""
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


def probe(
    build: Callable[[], nn.Module],
    inputs: tuple[Any, ...],
    loss: Loss,
    *,
    seed: int = 0,
    threads: int | None = None,
    against: Summary | None = None,
    deterministic: bool = True,
) -> Report:
    """Run a forward pass and a training step twice, or once and compare with a saved summary.

    Args:
        build: function that builds the module; called after seeding, so equal seeds give equal weights.
        inputs: arguments of the module.
        loss: function from the module's output to the number to minimise.
        seed: seed of every generator.
        threads: number of threads to compute with; None: as many as torch uses.
        against: summary of an earlier run, perhaps on another machine.
        deterministic: whether to allow only deterministic algorithms, as a retraining does; an operation without one raises.

    >>> report = probe(lambda: nn.Linear(2, 1), (torch.ones(3, 2),), torch.sum)
    >>> report.is_safe, len(report.rows)
    (True, 2)
    """
    run = partial(summarise, build, inputs, loss, seed=seed, threads=threads, deterministic=deterministic)
    return compare(run() if against is None else against, run(), same_model=against is None)


def summarise(
    build: Callable[[], nn.Module],
    inputs: tuple[Any, ...],
    loss: Loss,
    *,
    seed: int = 0,
    threads: int | None = None,
    deterministic: bool = True,
) -> Summary:
    """Record one forward pass in evaluation mode and one training step (loss, backward, plain gradient descent)."""
    with reproducible(seed, threads=threads or torch.get_num_threads(), deterministic=deterministic), torch.enable_grad():
        environment = Environment.now()
        module = build()
        calls: list[Call] = []
        module.eval()
        with torch.no_grad(), record_calls(module, "forward", calls, {}):
            module(*inputs)
        module.train()
        gradients: dict[int, tuple[str, ...]] = {}
        n_forward = len(calls)
        with record_calls(module, "training", calls, gradients):
            loss_value = loss(module(*inputs))
            # A model may have nothing to train.
            if loss_value.requires_grad:
                loss_value.backward()  # type: ignore[no-untyped-call]
        for place in range(n_forward, len(calls)):
            calls[place] = replace(calls[place], gradients=gradients.get(place, ()))
        parameters = {f"gradient of {name}": hashes(p.grad) for name, p in module.named_parameters()}
        with torch.no_grad():
            for parameter in module.parameters():
                if parameter.grad is not None:
                    parameter.sub_(0.01 * parameter.grad)
        parameters |= {f"value of {name}": hashes(value) for name, value in module.state_dict().items()}
    return Summary(tuple(calls), {name: " ".join(digests) for name, digests in parameters.items()}, environment)
