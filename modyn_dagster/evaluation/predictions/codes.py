"""Codes of two logits: 15 bits for their difference, which keep classes, bins of confidence and the order inside a block.

A code depends on the outputs of its block alone, as the bits of these outputs do: it is the same in a file of any stretch.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from modyn_dagster.evaluation.metrics.evaluation_samples import BINS, EvaluationSamples
from modyn_dagster.evaluation.metrics.losses import Float64
from modyn_dagster.evaluation.predictions.blocks import BLOCK
from modyn_dagster.keys import KeyArray

Int64 = npt.NDArray[np.int64]
Outputs = npt.NDArray[np.float32]

#: Code in place of a sample whose logits are kept as they are; those of differences follow.
EXACT: Final = 0
#: Largest code of a difference; the smallest is 1.
LARGEST: Final = (1 << 15) - 2
#: Largest distance of a difference below 1 from the one of its code; relative to the difference from 1 on.
TOLERANCE: Final = 4.5e-4
#: Widths of codes, in eighths of octaves, all of them normal numbers of float32.
STEPS: Final = np.ldexp(1 + np.arange(8) / 8, np.arange(-125, -9)[:, None]).reshape(-1)
#: Codes of a block reach from its smallest to its largest difference, but not further than this place (differences of 512).
_FURTHEST: Final = 10.0
#: Smallest width of a code by the largest place of its block: float32 tells the differences of two codes apart.
_FINEST: Final = 2.0**-21
#: Bound of the places of any code.
MOST: Final = 4 * _FURTHEST
#: Share of a step by which codes keep clear of the limits of bins, which are subject to rounding.
_MARGIN: Final = 0.5
#: Bins of confidence that two classes have; the confidence of the likelier one is at least one half.
_BINS: Final = range(BINS // 2, BINS)
#: Samples that are encoded at once, or one block more: their intermediate columns fit a processor's cache.
_AT_ONCE: Final = 1 << 15
#: Apart from each other further than any two codes of a group.
_APART: Final = 1 << 17


class CodedOutputs(NamedTuple):
    """Outputs of a model of two classes, in codes.

    Attributes:
        widths: number in ``STEPS`` of each block, ``uint16[m]``.
        bases: place of code 0 in each block, in steps, ``int32[m]``.
        codes: ``uint16[n]``, below 2**15.
        exact: logits of the samples with the code ``EXACT``, ``float32[k, 2]``.
    """

    widths: npt.NDArray[np.uint16]
    bases: npt.NDArray[np.int32]
    codes: npt.NDArray[np.uint16]
    exact: npt.NDArray[np.float32]

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """Concatenate outputs of whole blocks, at least one part."""
        return cls(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def outputs(self, sizes: Int64) -> Outputs:
        """Logits ``float32[n, 2]``: 0 and the difference, or the exact ones; ``sizes`` of the blocks, ``int64[m]``."""
        outputs = np.zeros((len(self.codes), 2), np.float32)
        bases, steps = np.repeat(self.bases, sizes), np.repeat(STEPS[self.widths], sizes)
        outputs[:, 1] = _differences(self.codes.astype(np.int64) + bases, steps)
        outputs[self.codes == EXACT] = self.exact
        return outputs


def block_sizes(keys: KeyArray) -> Int64:
    """Samples of each block of 1,024 positions of a batch, ``int64[m]``, of ascending keys; blocks without samples are left out.

    >>> block_sizes(np.array([0, 5, 1023, 1024, 1 << 32], np.uint64))
    array([3, 1, 1])
    """
    begins = np.flatnonzero(np.diff(keys // np.uint64(BLOCK)))
    ends = np.append(begins + 1, len(keys)) if len(keys) else begins
    return np.diff(ends, prepend=0)


def encode(outputs: Outputs, sizes: Int64) -> tuple[CodedOutputs, Outputs]:
    """Encode the logits of two classes, ``float32[n, 2]``, in blocks of these sizes; return what decoding gives, too.

    Decoded differences have the same sign, and zero stays zero; the confidence stays in its bin of the calibration error. In a
    block smaller differences stay smaller, and equal ones equal. A difference moves by at most ``TOLERANCE``. Samples for which
    no code does all this are kept as they are: nonfinite ones, and those among too many neighbours.

    >>> encode(np.array([[0, 0], [3, 1], [1, 3]], np.float32), np.array([3]))[1].round(3).tolist()
    [[0.0, 0.0], [0.0, -2.0], [0.0, 2.0]]
    """
    with np.errstate(all="ignore"):
        differences = np.subtract(outputs[:, 1], outputs[:, 0], dtype=np.float64)
        bins = EvaluationSamples(outputs, np.zeros(len(outputs), np.int64)).confidence_bins
    starts, decoded = np.cumsum(sizes) - sizes, np.zeros((len(outputs), 2), np.float32)
    widths, bases, codes = np.empty(len(sizes), np.uint16), np.empty(len(sizes), np.int32), np.empty(len(outputs), np.uint16)
    for blocks in np.split(np.arange(len(sizes)), np.flatnonzero(np.diff(starts // _AT_ONCE)) + 1) if len(sizes) else []:
        rows = slice(starts[blocks[0]], starts[blocks[-1]] + sizes[blocks[-1]])
        widths[blocks], bases[blocks], codes[rows], decoded[rows, 1] = _codes(differences[rows], bins[rows], sizes[blocks])
    is_exact = codes == EXACT
    decoded[is_exact] = outputs[is_exact]
    return CodedOutputs(widths, bases, codes, decoded[is_exact]), decoded


def _places(differences: Float64) -> Float64:
    """Map differences to a scale that is linear up to 1 and logarithmic beyond, linear in each octave: exact on every machine."""
    magnitudes = np.abs(differences)
    mantissas, exponents = np.frexp(magnitudes)
    return np.copysign(np.where(magnitudes < 1, magnitudes, exponents - 1 + 2 * mantissas), differences)


def _differences(numbers: Int64, steps: Float64) -> Float64:
    """Invert ``_places`` at multiples of steps."""
    places = np.abs(numbers) * steps
    octaves = np.floor(places)
    magnitudes = np.where(places < 1, places, np.ldexp(1 + (places - octaves), octaves.astype(np.int64) - 1))
    return np.copysign(magnitudes, numbers)


def _ranges(places: Float64, finite: npt.NDArray[np.bool_], sizes: Int64) -> tuple[Int64, Int64]:
    """Number in ``STEPS`` and base of the codes of each block."""
    starts = np.cumsum(sizes) - sizes
    lowest = np.minimum.reduceat(np.where(finite, places, np.inf), starts)
    highest = np.maximum.reduceat(np.where(finite, places, -np.inf), starts)
    lowest, highest = (np.clip(np.where(np.isfinite(end), end, 0), -_FURTHEST, _FURTHEST) for end in (lowest, highest))
    # Two codes less: both ends are rounded.
    needed = np.maximum((highest - lowest) / (LARGEST - 3), _FINEST * np.maximum(highest, -lowest))
    widths = np.searchsorted(STEPS, needed)
    return widths, np.floor(lowest / STEPS[widths]).astype(np.int64) - 1


def _codes(differences: Float64, bins: Int64, sizes: Int64) -> tuple[Int64, Int64, Int64, Float64]:
    """Numbers in ``STEPS`` and bases of some blocks, their codes, and the differences of these codes."""
    finite = np.isfinite(differences)
    values = np.where(finite, differences, 0)
    places = _places(values)
    widths, bases = _ranges(places, finite, sizes)
    blocks = np.repeat(np.arange(len(sizes)), sizes)
    segments = np.where(finite, np.sign(values).astype(np.int64) * (bins - _BINS[0] + 1), _OUTSIDE)
    order = np.argsort(differences)
    order = order[np.argsort(blocks[order].astype(np.uint16), kind="stable")]
    codes, decoded = np.empty(len(order), np.int64), np.empty(len(order))
    codes[order], decoded[order] = _spread(values[order], places[order], segments[order], blocks[order], widths, bases)
    return widths, bases, codes, decoded


#: Segment of nonfinite differences; the others have the sign of their class, and are numbered by bin of confidence from 1 on.
_OUTSIDE: Final = len(_BINS) + 1


def _spread(
    values: Float64, places: Float64, segments: Int64, blocks: Int64, widths: Int64, bases: Int64
) -> tuple[Int64, Float64]:
    """Codes of differences that ascend in each block, and the differences of these codes.

    Different values of a group (a segment of a block) get different codes: each is pushed up by those below it, and down by those
    above it; half of both is its code. A cluster is what pushes each other; if one of it moves too far, none of it has a code.
    """
    begins = (np.diff(segments, prepend=segments[:1] + 1) != 0) | (np.diff(blocks, prepend=0) != 0)
    fresh = begins | (np.diff(values, prepend=0.0) != 0)
    ranks, groups = np.cumsum(fresh), np.cumsum(begins)
    first, at = ranks[begins], np.flatnonzero(begins)
    below = ranks - first[groups - 1]
    above = np.append(first[1:], ranks[-1:] + 1)[groups - 1] - 1 - ranks
    steps, base = STEPS[widths][blocks], bases[blocks]
    lowest, highest = (limits[widths[blocks[at]], segments[at] + _OUTSIDE] - base[at] for limits in _LIMITS)
    lowest, highest = np.clip(lowest, 1, LARGEST + 1)[groups - 1], np.clip(highest, 0, LARGEST)[groups - 1]
    nearest = np.rint(np.clip(places, -2 * _FURTHEST, 2 * _FURTHEST) / steps).astype(np.int64) - base
    slots = np.clip(nearest, lowest, np.maximum(lowest, highest)) - below + _APART * groups
    back = below - _APART * groups
    up = np.minimum(np.maximum.accumulate(slots) + back, highest - above)
    down = np.maximum(np.minimum.accumulate(slots[::-1])[::-1] + back, lowest + below)
    numbers = (up + down) >> 1
    decoded = _differences(numbers + base, steps)
    bad = np.abs(decoded - values) > TOLERANCE * np.maximum(1, np.abs(values))
    bad |= (numbers < lowest) | (numbers > highest)
    clusters = np.flatnonzero(begins | ((np.diff(up, prepend=0) > 1) & (np.diff(down, prepend=0) > 1)))
    without = np.repeat(np.logical_or.reduceat(bad, clusters), np.diff(clusters, append=len(bad)))
    return np.where(without, EXACT, numbers), decoded


def _limits() -> tuple[Int64, Int64]:
    """Smallest and largest place of each segment in steps, from the lowest on, by width; the nonfinite ones have none."""
    shares = np.array(_BINS[1:]) / BINS
    # Where steps are so fine that this number ends, the block has no difference near such an edge.
    edges = np.minimum(_places(np.log(shares / (1 - shares))) / STEPS[:, None], _NOWHERE)
    one = np.ones((len(STEPS), 1), np.int64)
    lowest = np.hstack([one, np.floor(edges + _MARGIN).astype(np.int64) + 1])
    highest = np.hstack([np.ceil(edges - _MARGIN).astype(np.int64) - 1, _NOWHERE * one])
    return (
        np.hstack([_NOWHERE * one, -highest[:, ::-1], 0 * one, lowest, _NOWHERE * one]),
        np.hstack([-_NOWHERE * one, -lowest[:, ::-1], 0 * one, highest, -_NOWHERE * one]),
    )


_NOWHERE: Final = 1 << 40
_LIMITS: Final = _limits()
