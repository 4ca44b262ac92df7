"""Random streams by seed and place: the same numbers for the same place, whatever the number of workers."""

import hashlib

import numpy as np
import numpy.typing as npt

from modyn_dagster.keys import KeyArray


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
    shifted = np.empty_like(mixed)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed ^= np.right_shift(mixed, np.uint64(shift), out=shifted)
        mixed *= np.uint64(factor)
    mixed ^= np.right_shift(mixed, np.uint64(31), out=shifted)
    return mixed
