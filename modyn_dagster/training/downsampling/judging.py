"""A model that is asked what it makes of samples in the middle of its training."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def judging(body: nn.Module) -> Iterator[None]:
    """In evaluation mode within the block; afterwards every module is in the mode it was in."""
    modules = _modules_of(body)
    if not all(_is_plain(type(module)) for module in modules):
        was = {module: module.training for module in body.modules()}
        body.eval()
        try:
            yield
        finally:
            for module, training in was.items():
                module.training = training
        return
    active = [module for module in modules if module.training]
    _set(active, training=False)
    try:
        yield
    finally:
        _set(active, training=True)


def _set(modules: list[nn.Module], *, training: bool) -> None:
    for module in modules:
        vars(module)["training"] = training


def _modules_of(body: nn.Module) -> list[nn.Module]:
    """As ``body.modules()``, whose generators inside generators take longer than a small model."""
    found, open_ = dict[nn.Module, None](), [body]
    while open_:
        module = open_.pop()
        if module not in found:
            found[module] = None
            open_ += [part for part in vars(module)["_modules"].values() if part is not None]
    return list(found)


def _is_plain(kind: type[nn.Module]) -> bool:
    """Whether its mode is an attribute and nothing else; then there is no need for setters, which cost as much as a layer."""
    return kind.train is nn.Module.train and kind.eval is nn.Module.eval and kind.__setattr__ is nn.Module.__setattr__
