"""Learning rates that fall from layer to layer, from the head down.

Source: layer-wise decay of ULMFiT (Howard and Ruder, ACL 2018) and, with one rate per block, of BEiT (Bao et al., ICLR 2022).
"""

from collections.abc import Sequence
from typing import Any

from torch import nn

from modyn_dagster.errors import ConfigError


def layers_of(names: Sequence[str]) -> dict[str, int]:
    """Layers of parameters by name, from 0 on, bottom first.

    A layer is a numbered block: what has the same name up to its first number. Parameters before the first block (embeddings, a
    stem) are the lowest layer, those after the last one (the head) the highest.

    >>> layers_of(["embed.weight", "block.0.a", "block.0.b", "block.1.a", "head.weight"])
    {'embed.weight': 0, 'block.0.a': 1, 'block.0.b': 1, 'block.1.a': 2, 'head.weight': 3}
    >>> layers_of(["0.weight", "0.bias", "2.weight"])
    {'0.weight': 0, '0.bias': 0, '2.weight': 1}
    """
    blocks = [_block(name) for name in names]
    numbers = {block: i for i, block in enumerate(dict.fromkeys(block for block in blocks if block is not None))}
    last = max((i for i, block in enumerate(blocks) if block is not None), default=-1)
    layers, current = {}, -1
    for i, (name, block) in enumerate(zip(names, blocks)):
        current = numbers.get(block or "", current)
        layers[name] = len(numbers) if i > last else current
    used = {layer: i for i, layer in enumerate(sorted(set(layers.values())))}
    return {name: used[layer] for name, layer in layers.items()}


def decayed(groups: Sequence[Any], rate: float | None, decay: float, named: dict[str, nn.Parameter], *, source: str) -> list[Any]:
    """Divide parameter groups of an optimizer by layers, each with the rate of its group times a power of ``decay``.

    Args:
        groups: parameters, or dicts of them.
        rate: learning rate of the optimizer; None where only groups have one.
        decay: rate of a layer relative to the one above it.
        named: all parameters of the model, also frozen ones.
        source: name of the pipeline, for errors.
    """
    layers, names = layers_of(list(named)), {parameter: name for name, parameter in named.items()}
    top = max(layers.values())
    divided: list[Any] = []
    dicts: list[dict[str, Any]] = list(groups) if groups and isinstance(groups[0], dict) else [{"params": list(groups)}]
    for group in dicts:
        base: float | None = group.get("lr", rate)
        if base is None:
            rule = "needs a learning rate to multiply: give the optimizer's `config` an `lr`, or its groups"
            raise ConfigError(source, "training.pretrained.layer_decay", decay, rule)
        by_layer: dict[int, list[nn.Parameter]] = {}
        for parameter in group["params"]:
            by_layer.setdefault(layers[names[parameter]], []).append(parameter)
        divided += [group | {"params": by_layer[i], "lr": base * decay ** (top - i)} for i in sorted(by_layer)]
    return divided


def _block(name: str) -> str | None:
    parts = name.split(".")
    place = next((i for i, part in enumerate(parts) if part.isdigit()), None)
    return None if place is None else ".".join(parts[: place + 1])
