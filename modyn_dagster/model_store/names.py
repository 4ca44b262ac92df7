"""Names of tensors without what ``torch.compile`` and data-parallel wrappers put in front of them."""

from collections.abc import Mapping
from typing import Final

from torch import Tensor, nn

from modyn_dagster.errors import StorageError

_COMPILED: Final = "_orig_mod."
_PARALLEL: Final = "module."


def normalised(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state under the names it would have without wrappers, in its order.

    ``_orig_mod.`` goes wherever it stands at the beginning of a part; ``module.`` where every name begins with it.
    Raises ``StorageError`` when two names become one.
    """
    names = list(state)
    if all(isinstance(name, str) for name in names):
        plain = [_without_compiled(name) for name in names]
        while plain and all(name.startswith(_PARALLEL) for name in plain):
            plain = [_without_compiled(name.removeprefix(_PARALLEL)) for name in plain]
    else:
        plain = names
    found: dict[str, Tensor] = {}
    for name, short in zip(names, plain, strict=True):
        if short in found:
            raise StorageError(f"{name!r} and another tensor are both {short!r} without their wrappers")
        found[short] = state[name]
    return found


def load_into(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Copy a state into a module, wrapped or not, on its device. ``StorageError`` names what does not fit."""
    own = module.state_dict()
    by_plain = dict(zip(normalised(own), own, strict=True))
    missing, unknown = [n for n in by_plain if n not in state], [n for n in state if n not in by_plain]
    if missing or unknown:
        raise StorageError(f"the module lacks {unknown[:5]} of the model, the model lacks {missing[:5]} of the module")
    for plain, name in by_plain.items():
        if own[name].shape != state[plain].shape or own[name].dtype != state[plain].dtype:
            found, expected = state[plain], own[name]
            raise StorageError(
                f"{plain!r} is {found.dtype} {tuple(found.shape)}, the module's is {expected.dtype} {tuple(expected.shape)}"
            )
    module.load_state_dict({name: state[plain] for plain, name in by_plain.items()})


def _without_compiled(name: str) -> str:
    return name.removeprefix(_COMPILED).replace(f".{_COMPILED}", ".")
