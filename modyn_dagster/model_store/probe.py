"""Whether a model computes the same bits twice, and if not, the first layer that does not.

After the probe of MMlib (EDBT 2022, section 4.3), with an entry per call of a layer, so that a module used twice keeps both.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from modyn_dagster.model_store.environment import Environment
from modyn_dagster.model_store.probe_hooks import hashes, recorded, with_gradients
from modyn_dagster.model_store.probe_report import Difference, Report, compare
from modyn_dagster.model_store.probe_summary import Call, Loss, Summary
from modyn_dagster.reproducible import reproducible

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
