"""Random streams by seed and place: the same numbers for the same place, whatever the number of workers."""

import hashlib
from typing import Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.keys import KeyArray

#: Keys that are hashed in one go: two arrays of these take 128 KB.
_HASHED_AT_ONCE: Final = 8192


def stable_hash(part: int | str) -> int:
    """A 64-bit hash that is the same in every process and on every machine.

    >>> stable_hash("rtbs") == stable_hash("rtbs"), stable_hash(1) == stable_hash("1")
    (True, False)
    """
    text = f"{type(part).__name__}:{part}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def rng_for(seed: int, *path: int | str) -> np.random.Generator:
    """The independent random stream of a place in the pipeline.

    Args:
        seed: of the pipeline.
        path: names of the place.

    >>> rng_for(0, "rtbs", 3).integers(100, size=4).tolist() == rng_for(0, "rtbs", 3).integers(100, size=4).tolist()
    True
    """
    return np.random.default_rng([seed, *map(stable_hash, path)])


def seed_for(seed: int, *path: int | str) -> int:
    """A 32-bit seed for a library, by place in the pipeline as ``rng_for``."""
    return int(rng_for(seed, *path).integers(2**32, dtype=np.uint64))


def hash_keys(keys: KeyArray, salt: int) -> npt.NDArray[np.uint64]:
    """Salted hashes of keys, ``uint64[n]``: uniform, and independent of the order and number of keys.

    The finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) over the key plus ``salt + 1`` times its increment.
    """
    mixed = keys + np.uint64((salt + 1) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF)
    # One block after the other through all steps: it stays in the processor's cache.
    shifted = np.empty(min(len(mixed), _HASHED_AT_ONCE), np.uint64)
    for start in range(0, len(mixed), _HASHED_AT_ONCE):
        block = mixed[start : start + _HASHED_AT_ONCE]
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            block ^= np.right_shift(block, np.uint64(shift), out=shifted[: len(block)])
            block *= np.uint64(factor)
        block ^= np.right_shift(block, np.uint64(31), out=shifted[: len(block)])
    return mixed
