"""Dropout by sample inside of attention and recurrent layers, and wherever a model calls a dropout function of torch.

These functions draw for themselves, between other operations. So they run as they are, and the tensor of random numbers alone is
replaced, at the operation that fills it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from modyn_dagster.training.team.dropout import Masks

_aten: Final = torch.ops.aten
_ATTENTION: Final[Any] = functional.multi_head_attention_forward
_RECURRENT: Final[frozenset[Any]] = frozenset({torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu})
#: Functions whose inputs have the samples on their first axis.
_PLAIN: Final[frozenset[Any]] = frozenset(
    {
        torch.dropout,
        torch.dropout_,
        functional.alpha_dropout,
        functional.dropout,
        functional.dropout1d,
        functional.dropout2d,
        functional.dropout3d,
        functional.feature_alpha_dropout,
    }
)


class FunctionalDropout(TorchFunctionMode):
    """Calls of torch within the block, with masks of the whole batch.

    Attention with dropout takes its plain form, and recurrent layers with dropout the one of torch: fused kernels of CUDA draw
    where nobody can see it. Compiled and scripted code draws by rank.

    Args:
        masks: masks of dropout by sample.
    """

    def __init__(self, masks: Masks) -> None:
        super().__init__()
        self._masks = masks

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call a function of torch."""
        given = kwargs or {}
        draws = None if self._masks.is_drawing else self._draws(func, args, given)
        if draws is None:
            return func(*args, **given)
        with _plain_kernels(), draws:
            return func(*args, **given)

    def _draws(self, func: Callable[..., Any], args: Sequence[Any], given: Mapping[str, Any]) -> "_Draws | None":
        """Return the draws of a function, None where it has no dropout."""
        draws = partial(_Draws, self._masks, f"of `{getattr(func, '__name__', func)}`")
        if func in _PLAIN:
            return draws()
        if func is functional.scaled_dot_product_attention:
            query = args[0] if args else given["query"]
            return draws(is_lifted=query.ndim == 3) if (args[4] if len(args) > 4 else given.get("dropout_p", 0.0)) else None
        if func is _ATTENTION:
            # Torch hands over these arguments by position, whoever calls it.
            return draws(heads=args[4]) if args[10] and given["training"] else None
        if func in _RECURRENT:
            # The weights come third, and fourth for packed sequences.
            packed = not isinstance(args[3], bool)
            p, training = args[6:8] if packed else args[5:7]
            return draws(axis=1, packed=packed) if p and training else None
        return None


class _Draws(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no type for it
    """Operations that fill a tensor with the random numbers of a dropout."""

    def __init__(
        self, masks: Masks, name: str, *, axis: int = 0, heads: int = 1, packed: bool = False, is_lifted: bool = False
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch has no type for it
        self._masks, self._name, self._axis, self._heads, self._packed = masks, name, axis, heads, packed
        self._is_lifted = is_lifted

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Say no: to keep the compiler away, torch would import it, which takes seconds."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operation."""
        if func is _aten.bernoulli_.float:
            # A probability of one half is the default, and left out.
            noise, *keep = args
            return noise.copy_(self._own(lambda ones: func(ones, *keep), noise))
        if func is _aten.native_dropout.default:
            inputs, p, _ = args
            mask = self._own(lambda ones: func(ones, p, True)[1], inputs)
            return inputs * mask * (1 / (1 - p)), mask
        return func(*args, **(kwargs or {}))

    def _own(self, draw: Callable[[Tensor], Tensor], like: Tensor) -> Tensor:
        if _is_repeated():
            rule = "the dropout {} draws in a part without gradients, or in a checkpointed part that is repeated; leave that out"
            raise self._masks.refused(rule.format(self._name))
        if self._packed:
            raise self._masks.refused(f"the dropout {self._name} gets packed sequences, whose rows are no samples; pad them")
        # Attention that returns its weights has an axis for heads of samples, [b * heads, ...]; else [b, heads, ...].
        per_sample = self._heads if like.ndim == 3 else 1
        # Since torch 2.15 attention without heads computes in [1, b, ...].
        axis = 1 if self._is_lifted and like.ndim == 4 else self._axis
        return self._masks.own(self._name, draw, like, axis=axis, per_sample=per_sample)


def _is_repeated() -> bool:
    """Tell a part that ``torch.utils.checkpoint`` computes again: it has hooks, or no gradients the first time."""
    hooks: object = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return hooks is not None or not torch.is_grad_enabled()


@contextmanager
def _plain_kernels() -> Iterator[None]:
    cudnn = torch.backends.cudnn.enabled
    torch.backends.cudnn.enabled = False
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.cudnn.enabled = cudnn
