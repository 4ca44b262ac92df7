"""A model that is asked what it makes of samples in the middle of its training."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def judging(body: nn.Module) -> Iterator[None]:
    """In evaluation mode within the block; afterwards every module is in the mode it was in."""
    modules = list(body.modules())
    active = [module for module in modules if module.training]
    if not all(map(_is_plain, modules)):
        was = {module: module.training for module in modules}
        body.eval()
        try:
            yield
        finally:
            for module, training in was.items():
                module.training = training
        return
    _set(active, training=False)
    try:
        yield
    finally:
        _set(active, training=True)


def _set(modules: list[nn.Module], *, training: bool) -> None:
    for module in modules:
        vars(module)["training"] = training


def _is_plain(module: nn.Module) -> bool:
    """Whether its mode is the attribute and nothing else; then there is no need for setters, which cost as much as a layer."""
    kind = type(module)
    own = kind.train is nn.Module.train and kind.eval is nn.Module.eval and kind.__setattr__ is nn.Module.__setattr__
    return own and "training" in vars(module)
