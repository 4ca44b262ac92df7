"""Importance weighted memory sampling (IWMS): labelled samples that resemble the newest samples without a label."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from modyn_dagster.errors import SelectionError
from modyn_dagster.keys import KeyArray
from modyn_dagster.reproducibility.randomness import hash_keys
from modyn_dagster.selection.presampling.similarity import CandidatePass, Choice, Ranking, Samples

#: Candidates held for all unlabelled samples together, 16 bytes each, and at least for one of them.
_MOST_HELD: Final = 1 << 22
_LEAST_DEPTH: Final = 16


@dataclass(frozen=True, slots=True)
class SimilarChoice:
    """Chosen samples.

    Attributes:
        keys: ``uint64[n]``, ascending.
        n_uniform: number of them that were drawn uniformly, for want of a candidate of the predicted class.
    """

    keys: KeyArray
    n_uniform: int


def choose_similar(
    unlabelled: Samples,
    candidates: CandidatePass,
    pool: Iterable[KeyArray],
    n: int,
    *,
    choice: Choice,
    salt: int,
    depth: int | None = None,
) -> SimilarChoice:
    """Choose ``n`` different labelled samples that resemble samples without a label.

    The unlabelled samples take turns, round after round. Each takes one of the remaining candidates whose true class is the
    class predicted for it: drawn in proportion to the cosine of their embeddings, or the nearest. If none of that class remains,
    it takes one of all that remain, uniformly. A sample is taken once, since a training set has a key once.

    The result depends on the samples, their order, ``n`` and ``salt`` alone: not on chunks, and not on ``depth``.

    Args:
        unlabelled: at least one, in the order of their turns.
        candidates: labelled samples of (at least) the predicted classes.
        pool: keys of all labelled samples, in chunks; read when a sample is to be drawn uniformly.
        n: at most as many as the pool has.
        choice: ``proportional`` or ``nearest``.
        salt: of the random numbers.
        depth: candidates ranked for each unlabelled sample in one pass; default: bounded by 64 MiB for all of them.

    Raises:
        SelectionError: the pool has fewer samples than ``n``.

    Reference: Csaba et al., "Label Delay in Online Continual Learning", NeurIPS 2024: importance weighted memory sampling (IWMS).
    """
    m = len(unlabelled.keys)
    depth = depth or max(_LEAST_DEPTH, min(4 * -(-n // m), _MOST_HELD // m))
    uniform = _uniform_order(pool, n, salt)
    taken: set[int] = set()
    turn = n_uniform = 0
    while len(taken) < n:
        ranking = Ranking(unlabelled, depth, choice, salt)
        ranking.read(candidates, np.array(sorted(taken), np.uint64))
        while len(taken) < n:
            key = ranking.best(turn % m, taken)
            if key is None and not ranking.is_complete(turn % m):
                break
            if key is None:
                key = next((each for each in uniform if each not in taken), None)
                n_uniform += 1
            if key is None:
                raise SelectionError(f"{len(taken)} samples were found instead of {n}: the window changed meanwhile")
            taken.add(key)
            turn += 1
    return SimilarChoice(np.array(sorted(taken), np.uint64), n_uniform)


def _uniform_order(pool: Iterable[KeyArray], n: int, salt: int) -> Iterator[int]:
    """Yield the ``n`` keys with the smallest hashes, the smallest first; the pool is read when the first is asked for."""
    held = np.empty(0, np.uint64)
    for keys in pool:
        held = np.concatenate([held, keys])
        held = held[np.lexsort((held, hash_keys(held, salt)))[:n]]
    yield from held.tolist()
