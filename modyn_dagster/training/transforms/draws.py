"""The random numbers of transforms: they follow from seed, transform, epoch and sample alone."""

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from modyn_dagster.keys import KeyArray
from modyn_dagster.randomness import hash_keys, seed_for


@dataclass(frozen=True, slots=True)
class Draws:
    """Seeds of one transform in one epoch: a sample draws the same whenever it is read, and by whomever.

    Attributes:
        salt: of seed, transform and epoch.
    """

    salt: int

    @classmethod
    def of(cls, seed: int, number: int, epoch: int) -> "Draws":
        """Of the transform with this number."""
        return cls(seed_for(seed, "transform", number, epoch))

    def seeds_of_samples(self, keys: KeyArray) -> list[int]:
        """64 bits for each."""
        return [int(seed) for seed in hash_keys(keys, self.salt)]

    def seed_of_batch(self, keys: KeyArray) -> int:
        """The same of samples together, in this order."""
        digest = hashlib.blake2b(np.ascontiguousarray(keys).tobytes(), digest_size=8, salt=self.salt.to_bytes(8, "little"))
        return int.from_bytes(digest.digest(), "little")


def seeded(seed: int) -> None:
    """Seed the process's generators; that of a GPU, which transforms have no business with, goes on."""
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
    torch.default_generator.manual_seed(seed & 0x7FFFFFFFFFFFFFFF)


@contextmanager
def kept_generators() -> Iterator[None]:
    """Whatever is drawn within, the process's generators go on where they were."""
    python, numpy, torch_ = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(torch_)


def generator_marks() -> tuple[object, ...]:
    """Tells whether the process's generators have moved."""
    kind, keys, *place = np.random.get_state(legacy=True)
    return random.getstate(), kind, np.asarray(keys).tobytes(), tuple(place), torch.get_rng_state().numpy().tobytes()
