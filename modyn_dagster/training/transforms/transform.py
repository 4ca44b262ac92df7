"""One transform on a batch: its call per batch or sample, its random numbers, and failures traced to a sample."""

import hashlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from modyn_dagster.errors import BadSample, ConfigError, ModynError, TrainingError, WrongShape
from modyn_dagster.imports import import_callable, made_by_factory
from modyn_dagster.keys import KeyArray
from modyn_dagster.reproducibility.determinism import seed_generators
from modyn_dagster.reproducibility.randomness import hash_keys, seed_for
from modyn_dagster.spec.learning.transforms import TransformSpec
from modyn_dagster.training.parsing.function import reason_of
from modyn_dagster.training.parsing.parser import Where


@dataclass(frozen=True, slots=True)
class Draws:
    """Seeds of one transform in one epoch: a sample draws the same whenever it is read, and by whomever.

    Attributes:
        salt: seed derived from the training's seed, the transform and the epoch.
    """

    salt: int

    @classmethod
    def of(cls, seed: int, number: int, epoch: int) -> "Draws":
        """Seeds of the transform with a number."""
        return cls(seed_for(seed, "transform", number, epoch))

    def seeds_of_samples(self, keys: KeyArray) -> list[int]:
        """Return a seed of 64 bits for each sample."""
        return [int(seed) for seed in hash_keys(keys, self.salt)]

    def seed_of_batch(self, keys: KeyArray) -> int:
        """Return a seed of 64 bits for a batch, by its keys in order."""
        digest = hashlib.blake2b(np.ascontiguousarray(keys).tobytes(), digest_size=8, salt=self.salt.to_bytes(8, "little"))
        return int.from_bytes(digest.digest(), "little")


class Transform:
    """Transform of a spec.

    Args:
        spec: spec of the transform.
        field: field of the training spec, for errors.
        source: name of the pipeline, for errors.
        where: finds the place of a sample, for errors.

    Attributes:
        takes_rng: True if it takes a generator as ``rng``.
        beside: True if it may draw from the process's generators, and so must run in the training thread.
    """

    def __init__(self, spec: TransformSpec, *, field: str, source: str, where: Where | None) -> None:
        self.spec, self.field, self._source, self._where = spec, field, source, where
        self._call = _callable(spec, field, source)
        self._what = f"{source}: {field}: {spec.path}"
        self.takes_rng = _takes_rng(self._call)
        self.beside = spec.draws and not self.takes_rng

    @torch.no_grad()
    def __call__(self, inputs: Tensor, keys: KeyArray, draws: Draws) -> Tensor:
        """Transform inputs ``[n, ...]`` of the samples with these keys to ``[n, ...]``, perhaps of another shape.

        Raises:
            BadSample: it fails on a sample.
            TrainingError: it fails on a batch, with none of its samples alone.
            WrongShape: what it returns are not as many samples, or they differ in shape.
        """
        if self.spec.per == "batch":
            return self._of_batch(inputs, keys, draws)
        seeds = draws.seeds_of_samples(keys)
        found = [self._of_sample(*each) for each in zip(inputs, keys.tolist(), seeds, strict=True)]
        for sample, key in zip(found, keys, strict=True):
            if sample.shape != found[0].shape or sample.dtype != found[0].dtype:
                what = f"{self._what}: for the sample with key {key}"
                raise WrongShape(found[0].shape, sample.shape, what=what)
        return torch.stack(found) if found else inputs

    def _of_batch(self, inputs: Tensor, keys: KeyArray, draws: Draws) -> Tensor:
        try:
            found = self._drawing(inputs, draws.seed_of_batch(keys))
        except ModynError:
            raise
        except Exception as error:
            self._require_each(inputs, keys, draws)
            reason = f"{reason_of(error)} (with {len(keys)} samples from key {keys[0]} on together, with none of them alone)"
            raise TrainingError(f"{self._what} failed: {reason}") from error
        if found.ndim == 0 or len(found) != len(inputs):
            raise WrongShape([len(inputs), "..."], found.shape, what=self._what)
        return found

    def _of_sample(self, sample: Tensor, key: int, seed: int) -> Tensor:
        try:
            return self._drawing(sample, seed)
        except ModynError:
            raise
        except Exception as error:
            raise self._failed(key, error) from error

    def _require_each(self, inputs: Tensor, keys: KeyArray, draws: Draws) -> None:
        for i, key in enumerate(keys.tolist()):
            try:
                self._drawing(inputs[i : i + 1], draws.seed_of_batch(keys[i : i + 1]))
            except Exception as error:
                raise self._failed(key, error) from error

    def _drawing(self, given: Tensor, seed: int) -> Tensor:
        if self.takes_rng:
            return self._tensor(self._call(given, rng=np.random.default_rng(seed)))
        if not self.beside:
            return self._tensor(self._call(given))
        seed_generators(seed)
        return self._tensor(self._call(given))

    def _tensor(self, returned: object) -> Tensor:
        if isinstance(returned, Tensor):
            return returned
        array = np.asarray(returned)
        if array.dtype.kind not in "biuf":
            raise ConfigError(self._source, self.field, self.spec.path, f"must return a tensor, not {type(returned).__name__}")
        return torch.from_numpy(np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="), copy=False)))

    def _failed(self, key: int, error: Exception) -> BadSample:
        if self._where is None:
            return BadSample(self._what, key, reason_of(error))
        place = self._where(key)
        return BadSample(self._what, key, reason_of(error), dataset=place.dataset, path=place.path, offset=place.offset)


def _callable(spec: TransformSpec, field: str, source: str) -> Callable[..., Any]:
    if spec.function is not None:
        function = import_callable(spec.function, source=source, field=f"{field}.function")
        return partial(function, **spec.config) if spec.config else function
    what = "a callable (tensor) -> tensor"
    made: Callable[..., Any] = made_by_factory(str(spec.factory), spec.config, what=what, source=source, field=field)
    return made


def _takes_rng(function: Callable[..., Any]) -> bool:
    try:
        return "rng" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
