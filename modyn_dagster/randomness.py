"""The one door to random numbers: same seed and same place, same numbers, whatever the worker count."""

import hashlib

import numpy as np
import numpy.typing as npt

from modyn_dagster.keys import KeyArray


def stable_hash(part: int | str) -> int:
    """A 64-bit number that is the same in every process and on every machine."""
    text = f"{type(part).__name__}:{part}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def rng_for(seed: int, *path: int | str) -> np.random.Generator:
    """Independent stream for a place in the pipeline, for example ``rng_for(seed, "rtbs", trigger)``."""
    return np.random.default_rng([seed, *map(stable_hash, path)])


def seed_for(seed: int, *path: int | str) -> int:
    """A 32-bit seed for a library that wants one, at a place in the pipeline."""
    return int(rng_for(seed, *path).integers(2**32, dtype=np.uint64))


def hash_keys(keys: KeyArray, salt: int) -> npt.NDArray[np.uint64]:
    """A salted hash of every key, ``uint64[n]``: uniform, and independent of the order and number of keys.

    The finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) over key plus ``salt + 1`` times its increment.
    """
    mixed = keys + np.uint64((salt + 1) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF)
    shifted = np.empty_like(mixed)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed ^= np.right_shift(mixed, np.uint64(shift), out=shifted)
        mixed *= np.uint64(factor)
    mixed ^= np.right_shift(mixed, np.uint64(31), out=shifted)
    return mixed
