"""Optimizers by name or from user code, and which of them gets which parameter."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch import nn

from modyn_dagster.errors import ConfigError
from modyn_dagster.imports import call_factory
from modyn_dagster.spec.learning.optimizers import CustomOptimizerSpec, OptimizerName, OptimizerSpec, optimizer_fields
from modyn_dagster.training.models.fine_tuning.freezing import matching
from modyn_dagster.training.models.fine_tuning.layer_rates import decayed

OPTIMIZERS: Final[dict[OptimizerName, Callable[..., torch.optim.Optimizer]]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "adamax": torch.optim.Adamax,
    "nadam": torch.optim.NAdam,
    "radam": torch.optim.RAdam,
    "adagrad": torch.optim.Adagrad,
    "adadelta": torch.optim.Adadelta,
    "rmsprop": torch.optim.RMSprop,
}
OneSpec = OptimizerSpec | CustomOptimizerSpec
Named = dict[str, nn.Parameter]


def build_optimizers(
    specs: Sequence[OneSpec], body: nn.Module, *, source: str, layer_decay: float | None = None
) -> list[torch.optim.Optimizer]:
    """One optimizer per spec. Every parameter that can be trained has exactly one, else ``ConfigError``.

    With ``layer_decay``, learning rates are those of the optimizers and groups times a power of it by layer.
    """
    left = {name: parameter for name, parameter in body.named_parameters() if parameter.requires_grad}
    if not left:
        raise ConfigError(source, "training.model", "(module)", "has no parameter that can be trained")
    shares: list[Named] = []
    for spec, field in zip(specs, optimizer_fields(len(specs))):
        fits = left if spec.parameters is None else matching(spec.parameters, left, field=f"{field}.parameters", source=source)
        shares.append(dict(fits))
        left = {name: parameter for name, parameter in left.items() if name not in shares[-1]}
    if left:
        rule = f"takes no {', '.join(left)}; an optimizer without `parameters` takes all others"
        raise ConfigError(source, "training.optimizer", "(all)", rule)
    fields = optimizer_fields(len(specs))
    built = []
    for spec, share, field in zip(specs, shares, fields):
        if not share:
            raise ConfigError(source, field, "(all)", "the optimizers before it take all parameters")
        parameters = _grouped(spec, share, field, source)
        if layer_decay is not None:
            parameters = decayed(parameters, _rate(spec), layer_decay, dict(body.named_parameters()), source=source)
        built.append(_built(spec, parameters, field, source))
    return built


def _rate(spec: OneSpec) -> float | None:
    rate = spec.lr if isinstance(spec, OptimizerSpec) else spec.config.get("lr")
    return float(rate) if isinstance(rate, int | float) else None


def _built(spec: OneSpec, parameters: list[Any], field: str, source: str) -> torch.optim.Optimizer:
    if isinstance(spec, OptimizerSpec):
        try:
            return OPTIMIZERS[spec.name](parameters, **spec.settings())
        except (TypeError, ValueError) as error:
            raise ConfigError(source, f"{field}.config", spec.config, f"{spec.name} refused it: {error}") from error
    optimizer = call_factory(spec.factory, spec.config, parameters, source=source, field=field)
    if not isinstance(optimizer, torch.optim.Optimizer):
        rule = f"must return a torch.optim.Optimizer, not {type(optimizer).__name__}"
        raise ConfigError(source, f"{field}.factory", spec.factory, rule)
    return optimizer


def _grouped(spec: OneSpec, share: Named, field: str, source: str) -> list[Any]:
    """The parameters, or dicts of them with what they do not share."""
    if not spec.groups:
        return list(share.values())
    rest, groups = dict(share), []
    for number, group in enumerate(spec.groups):
        found = matching(group.parameters, rest, field=f"{field}.groups[{number}].parameters", source=source)
        own = {name: value for name in ("lr", "weight_decay") if (value := getattr(group, name)) is not None}
        groups.append({"params": list(found.values())} | own | group.config)
        rest = {name: parameter for name, parameter in rest.items() if name not in found}
    return [*groups, *([{"params": list(rest.values())}] if rest else [])]


def carry_states(
    optimizers: Sequence[torch.optim.Optimizer],
    states: Sequence[Mapping[str, Any]] | None,
    load: Callable[[torch.optim.Optimizer, dict[str, Any]], None],
    *,
    source: str,
) -> None:
    """Give optimizers the states of another training's; settings stay. ``ConfigError`` where one is not for the other."""
    field = "training.carry_optimizer"
    if states is None or len(states) != len(optimizers):
        rule = f"the previous model has the states of {len(states or ())} optimizers, there are {len(optimizers)}"
        raise ConfigError(source, field, True, rule)
    for optimizer, state in zip(optimizers, states, strict=True):
        own = optimizer.state_dict()
        shapes = [sorted(group["params"]) for group in own["param_groups"]]
        if shapes != [sorted(group["params"]) for group in state["param_groups"]]:
            raise ConfigError(source, field, True, "the previous model's optimizers have other parameters or groups")
        load(optimizer, {"state": state["state"], "param_groups": own["param_groups"]})
