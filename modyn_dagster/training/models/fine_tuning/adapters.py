"""Low-rank adapters of linear layers, by peft, and the parameters that are trained beside them."""

import re
from collections.abc import Sequence
from typing import Final

from torch import nn

from modyn_dagster.errors import MissingExtra
from modyn_dagster.imports import is_installed
from modyn_dagster.spec.learning.pretrained import LoraSpec
from modyn_dagster.training.models.fine_tuning.freezing import matching

_FIELD: Final = "training.pretrained.lora"
#: Part of the names of an adapter's modules and parameters.
_ADAPTER: Final = re.compile(r"\.lora_[A-Za-z_]+\.default(\.|$)")


def add_adapters(body: nn.Module, lora: LoraSpec, *, source: str) -> list[str]:
    """Add fresh adapters, which change no output yet; returns the names of the parameters that stay frozen.

    Draws from torch's global generator.
    """
    if not is_installed("peft"):
        raise MissingExtra(source, _FIELD, "(on)", package="peft", extra="pretrained")
    from peft import LoraConfig, inject_adapter_in_model

    pattern = "|".join(re.escape(name) for name in target_layers(body, lora, source=source))
    config = LoraConfig(r=lora.rank, lora_alpha=lora.alpha, lora_dropout=lora.dropout, target_modules=f"({pattern})")
    inject_adapter_in_model(config, body)
    # Freezing is decided here and by the training: peft freezes the head as well.
    body.requires_grad_()
    return frozen_beside_adapters(body, lora, source=source)


def frozen_beside_adapters(body: nn.Module, lora: LoraSpec, *, source: str) -> list[str]:
    """Names of the parameters of a body with adapters that are not trained."""
    beside = set(trained_beside(body, lora, source=source))
    return [name for name, _ in body.named_parameters() if _ADAPTER.search(name) is None and name not in beside]


def target_layers(body: nn.Module, lora: LoraSpec, *, source: str) -> list[str]:
    """Names of the linear layers that get adapters: those that fit the targets and are not trained themselves.

    Raises ``ConfigError`` for a pattern that fits none.
    """
    trained = {name.rpartition(".")[0] for name in trained_beside(body, lora, source=source)}
    linear = {name: None for name, module in body.named_modules() if isinstance(module, nn.Linear) and name not in trained}
    return list(matching(lora.targets, linear, field=f"{_FIELD}.targets", source=source, noun="linear layer below the head"))


def trained_beside(body: nn.Module, lora: LoraSpec, *, source: str) -> list[str]:
    """Names of the parameters that are trained beside the adapters: the head, or those that the spec names."""
    if lora.train is None:
        return _head_of(body)
    own = {name: None for name, _ in body.named_parameters() if _ADAPTER.search(name) is None}
    return list(matching(lora.train, own, field=f"{_FIELD}.train", source=source))


def _head_of(body: nn.Module) -> list[str]:
    """Names of a head's parameters: those that ``head_names`` lists, else those of the last linear layer."""
    own: Sequence[str] | None = getattr(body, "head_names", None)
    if own is not None:
        return list(own)
    linear = [name for name, module in body.named_modules() if isinstance(module, nn.Linear) and _ADAPTER.search(name) is None]
    names = {name for name, _ in body.named_parameters()}
    return [name for key in ("weight", "bias") if linear and (name := f"{linear[-1]}.{key}".lstrip(".")) in names]
