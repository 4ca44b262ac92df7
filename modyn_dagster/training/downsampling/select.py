"""Choice of samples by the name of a policy, from plain tensors."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from modyn_dagster.keys import KeyArray
from modyn_dagster.training.downsampling.pool import SHAPES, Pool, ValidationGradient
from modyn_dagster.training.downsampling.registry import POLICIES, UNSIZED, build_policy, extends

#: Arrays that ``select`` accepts.
Array = Tensor | npt.NDArray[Any] | Sequence[Any]

#: Axis of the samples; negative where an axis of models may come first.
_AXIS: Final = {
    "logits": -2,
    "labels": 0,
    "losses": 0,
    "gradients": -2,
    "embeddings": 0,
    "irreducible_losses": 0,
    "history": 1,
}
_NDIM: Final = {"logits": (2, 3), "gradients": (2, 3), "embeddings": (2,), "history": (2,)}
#: Policies that average over several models.
_STACKED: Final = frozenset({"el2n", "grand"})
#: Policies that may repeat a sample: their budget may exceed the size of the pool.
_REPEATING: Final = frozenset({"loss", "dlis"})


def select(
    name: str,
    *,
    logits: Array | None = None,
    labels: Array | None = None,
    losses: Array | None = None,
    gradients: Array | None = None,
    embeddings: Array | None = None,
    k: int,
    seed: int,
    **options: Any,
) -> tuple[Tensor, Tensor]:
    """Choose ``k`` samples of a pool.

    Tensors or arrays have one row per sample: ``logits float[n, c]``, ``labels int[n]``, ``losses float[n]``,
    ``gradients float[n, d]``, ``embeddings float[n, d]``. Where losses or gradients are not given, they are those of the
    cross-entropy of logits and labels (the gradient at the outputs, ``p - y``).

    Args:
        name: name of the policy (``POLICIES``).
        logits: see above.
        labels: see above.
        losses: see above.
        gradients: see above.
        embeddings: see above.
        k: number of samples; InfoBatch ignores it.
        seed: at least 0; the same arguments give the same result.
        options: ``n`` where no tensor tells it; ``irreducible_losses float[n]`` (rho), ``validation_gradient float[d]`` or a
            function of a step (glister), ``history [epochs, n]`` (forgetting, el2n, grand), ``epoch`` (rs2, infobatch),
            ``selected int[s]`` (members already, which are not chosen again), ``keys uint64[n]`` (different ones, by which equal
            scores are ordered, in place of their places in the pool), ``balance: none | proportional | equal``
            (class by class), and the fields of the policy's class.

    Returns:
        ``int64[k]`` indices into the pool, which repeat only when drawn with replacement, and ``float[k]`` weights. Estimators
        have ``E[sum of w * v] = sum of v`` over the pool for any values; the others have weights 1.

    Raises:
        ValueError: an unknown name or option, a missing tensor, shapes that differ, or a budget outside of ``1..n``.
    """
    arrays = {"logits": logits, "labels": labels, "losses": losses, "gradients": gradients, "embeddings": embeddings}
    arrays |= {extra: options.pop(extra, None) for extra in ("irreducible_losses", "history")}
    inputs = {field: _tensor(field, value) for field, value in arrays.items() if value is not None}
    gradient, selected = _gradient(options.pop("validation_gradient", None)), options.pop("selected", None)
    epoch, n = options.pop("epoch", 0), _size(inputs, options.pop("n", None), name)
    keys = _keys(options.pop("keys", None), n)
    policy = build_policy(name, options)
    _check(name, inputs, n, seed, epoch)
    members = None if selected is None else _members(name, selected, n)
    _check_budget(name, n - (0 if members is None else len(members)), k, policy)
    chosen = policy(Pool(n, name, **inputs, validation_gradient=gradient, selected=members, epoch=epoch, keys=keys), k, seed)
    floating = [tensor for tensor in inputs.values() if tensor.is_floating_point()]
    dtype = torch.float64 if any(tensor.dtype == torch.float64 for tensor in floating) else torch.float32
    device = next(iter(inputs.values())).device if inputs else torch.device("cpu")
    return chosen.indices.to(device), chosen.weights.to(device, dtype)


def _tensor(field: str, value: Array) -> Tensor:
    tensor = value.detach() if isinstance(value, Tensor) else torch.from_numpy(np.array(value))
    if field == "labels":
        if tensor.is_floating_point():
            raise ValueError(f"labels= must be whole numbers, found {tensor.dtype}")
        return tensor.long()
    if field == "history" and not tensor.is_floating_point():
        return tensor
    # Half precision and integers are converted to float32.
    return tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()


def _gradient(value: Any) -> Tensor | ValidationGradient | None:
    return value if value is None or callable(value) else _tensor("validation_gradient", value)


def _size(inputs: dict[str, Tensor], n: int | None, name: str) -> int:
    for field, tensor in inputs.items():
        allowed = _NDIM.get(field, (1,)) if name in _STACKED else _NDIM.get(field, (1,))[:1]
        if tensor.ndim not in allowed:
            raise ValueError(f"{field}= must be {SHAPES[field]}, found shape {tuple(tensor.shape)}")
    if n is not None and (isinstance(n, bool) or not isinstance(n, int | np.integer)):
        raise ValueError(f"n must be a whole number, not {n!r}")
    sizes = {field: tensor.shape[_AXIS[field]] for field, tensor in inputs.items()} | ({"n": n} if n is not None else {})
    if not sizes:
        raise ValueError(f"{name} needs n= (the number of samples) or a tensor with a row per sample")
    if len(set(sizes.values())) > 1:
        raise ValueError(
            "inputs differ in the number of samples: " + ", ".join(f"{field} {size}" for field, size in sizes.items())
        )
    return int(next(iter(sizes.values())))


def _keys(keys: Array | None, n: int) -> KeyArray | None:
    if keys is None:
        return None
    values = np.array(keys.cpu() if isinstance(keys, Tensor) else keys)
    if values.shape != (n,) or (n and values.dtype.kind not in "iu"):
        raise ValueError(f"keys= must be uint64[n] with a key for each of {n} samples, found {values.dtype}{list(values.shape)}")
    return values.astype(np.uint64)


def _members(name: str, selected: Array, n: int) -> Tensor:
    if not extends(name):
        takers = ", ".join(policy for policy in POLICIES if extends(policy))
        raise ValueError(f"{name} does not take selected=; these do: {takers}")
    indices = np.array(selected.numpy(force=True) if isinstance(selected, Tensor) else selected).reshape(-1)
    members = torch.from_numpy(indices.astype(np.int64))
    are_whole, listed = indices.size == 0 or indices.dtype.kind in "iu", members.tolist()
    if not are_whole or len(set(listed)) != len(listed) or not all(0 <= member < n for member in listed):
        raise ValueError(f"selected= must be different indices from 0 to {n - 1}")
    return members


def _check(name: str, inputs: dict[str, Tensor], n: int, seed: int, epoch: int) -> None:
    if n < 1:
        raise ValueError(f"{name}: the pool is empty")
    if isinstance(seed, bool) or seed != int(seed) or seed < 0:
        raise ValueError(f"seed must be a whole number of at least 0, not {seed!r}")
    if isinstance(epoch, bool) or epoch != int(epoch) or epoch < 0:
        raise ValueError(f"epoch must be a whole number of at least 0, not {epoch!r}")
    if "history" in inputs and not len(inputs["history"]):
        raise ValueError("history= must be [epochs, n] of at least one epoch")
    if "labels" in inputs and "logits" in inputs:
        classes = inputs["logits"].shape[-1]
        if not 0 <= int(inputs["labels"].min()) <= int(inputs["labels"].max()) < classes:
            raise ValueError(f"labels= must be from 0 to {classes - 1}, as many as logits= have columns")


def _check_budget(name: str, n: int, k: int, policy: Any) -> None:
    if name in UNSIZED:
        return
    # Before the start of importance sampling, draws are without replacement.
    repeats = name in _REPEATING and getattr(policy, "replacement", False) and getattr(policy, "start", "always") == "always"
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1 or (k > n and not repeats):
        raise ValueError(f"k must be a whole number from 1 to {n}, not {k!r}")
