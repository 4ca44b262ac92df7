"""Which strategy is cheapest for one model, by what a sample of it costs to encode and to decode.

The choice that MMlib leaves as future work (EDBT 2022, section 6): bytes, time to save and time to recover, each at its price,
within a limit on the time to recover: where no estimate is below it, with a margin for a busy machine, a plain snapshot is
stored, than which nothing is read sooner.
"""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from modyn_dagster.model_store.format.codec import CHUNK, Codec, decode_chunk
from modyn_dagster.model_store.format.extra_state import PREFIX as EXTRA
from modyn_dagster.model_store.format.hash_tree import ModelId, leaf_hash
from modyn_dagster.model_store.format.metadata import About
from modyn_dagster.model_store.provenance.retraining import lineage_to_train
from modyn_dagster.model_store.strategies.encoding import begin
from modyn_dagster.model_store.strategies.plan import TINY, Part
from modyn_dagster.model_store.strategies.settings import Adaptive, ChangedLayers, Delta, Retrain, Snapshot, Strategy
from modyn_dagster.model_store.strategies.writer import SMALL, Saving

# Pieces that are encoded to learn what the rest will cost, and their size: little beside what saving the model itself takes.
_PIECES: Final = 4
_PIECE: Final = 64 << 10
# What a tensor costs to encode, or to decode, whatever its size.
_TENSOR_SECONDS: Final = 1e-4
# Opening, syncing and renaming a file.
_FILE_SECONDS: Final = 0.005
# Writing a byte and syncing it, and reading one from the page cache, of the seconds to hash it.
_WRITING: Final = 5.0
_READING: Final = 2.5
# A difference that saves less than this is worth a new keyframe: later differences are then to a nearer one.
_NEW_KEYFRAME: Final = 0.9
# Estimates of a busy machine are off by so much.
_MARGIN: Final = 1.5
_RECORD_BYTES: Final = 8 << 10


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a strategy would cost for this model."""

    strategy: Strategy
    n_bytes: float
    save_seconds: float
    recover_seconds: float

    def __str__(self) -> str:
        times = f"{self.save_seconds:.2g} s to save, {self.recover_seconds:.2g} s to recover"
        return f"{self.strategy.kind} {self.n_bytes / 1e6:.3g} MB, {times}"


@dataclass(frozen=True, slots=True)
class Sample:
    """What some chunks of the parts of a plan cost: stored bytes per byte, seconds per byte to encode and to decode."""

    ratio: float
    encode: float
    decode: float


def choose(saving: Saving, adaptive: Adaptive, about: About) -> tuple[Strategy, str]:
    """The cheapest strategy within the limit, and the reason with the figures behind it."""
    estimates = list(_estimates(saving, adaptive, about))
    limit, prices = adaptive.max_recovery_seconds, adaptive.prices
    within = [each for each in estimates if limit is None or each.recover_seconds * _MARGIN <= limit]

    def cost(each: Estimate) -> float:
        return prices.cost(each.n_bytes, each.save_seconds, each.recover_seconds)

    ranked = sorted(within, key=cost)
    reason = "adaptive, cheapest first: " + "; ".join(f"{each}: {cost(each):.3g}" for each in ranked)
    if not within:
        reason = "adaptive, nothing to decode or to train, for no strategy is sure to be quick enough"
    if len(within) < len(estimates):
        reason += f"; above {limit} s: " + ", ".join(str(each) for each in estimates if each not in within)
    return (ranked[0].strategy if ranked else Snapshot(compress=False)), reason


def _estimates(saving: Saving, adaptive: Adaptive, about: About) -> Iterator[Estimate]:
    hashing = _hashing(saving)
    raw = saving.n_bytes
    recover = raw * (1 + _READING) * hashing / saving.threads
    yield Estimate(Snapshot(compress=False), raw, _FILE_SECONDS + raw * _WRITING * hashing, recover)
    full = None
    samples: dict[object, Sample] = {}
    if raw >= SMALL:
        full = _estimate(saving, Snapshot(compress=True), hashing, samples)
        yield full
    for strategy in (ChangedLayers(), adaptive.delta):
        if saving.base is None or saving.settled(strategy).kind != strategy.kind:
            continue
        found = _estimate(saving, strategy, hashing, samples)
        if found.n_bytes <= _NEW_KEYFRAME * (raw if full is None else full.n_bytes):
            yield found
    match about.provenance:
        # A training gives the weights, and none of the extra state that belongs to them.
        case {"probed": True, "seconds": int() | float() as seconds} if EXTRA not in saving.record.leaves:
            before = 0.0 if about.start is None else _trained_before(saving, about.start) + raw * hashing * 4
            yield Estimate(Retrain(), _RECORD_BYTES, _FILE_SECONDS, seconds + before)


def _trained_before(saving: Saving, start: ModelId) -> float:
    """Seconds of the trainings that have to be done again before one that starts from this model."""
    base = saving.sources.model(start)
    trained = [] if base.has_weights else lineage_to_train(base, saving.sources.model)[1]
    found = [(each.about.provenance or {}).get("seconds") for each in trained]
    # How long one takes that was not measured, nobody knows.
    return sum(float(seconds) if isinstance(seconds, int | float) else math.inf for seconds in found)


def _estimate(
    saving: Saving, strategy: Delta | ChangedLayers | Snapshot, hashing: float, samples: dict[object, Sample]
) -> Estimate:
    parts = saving.parts(strategy)
    written = [part for part in parts if part.n_bytes >= TINY]
    as_they_are = sum(part.n_bytes for part in parts if part.n_bytes < TINY)
    # What two strategies store in the same way is looked at once.
    key = tuple((part.name, part.base is None) for part in written)
    sample = samples[key] = samples.get(key) or _sample(saving, written)
    stored = sum(part.n_bytes for part in written)
    n_bytes = stored * sample.ratio + as_they_are + 60 * len(parts) + 1000
    tensors = len(written) * _TENSOR_SECONDS
    writing = n_bytes * _WRITING * hashing + _FILE_SECONDS
    save = (stored * sample.encode + tensors) / saving.threads + writing
    # Everything is hashed, also what lies elsewhere.
    recover = (stored * sample.decode + (saving.n_bytes + as_they_are * _READING) * hashing + tensors) / saving.threads
    return Estimate(strategy, n_bytes, save, recover)


def _sample(saving: Saving, parts: Sequence[Part]) -> Sample:
    """Of pieces at equal distances over all bytes, so that a thousand small tensors do not speak for a few large ones."""
    n_in, n_out, encode, decode = 0, 0, 0.0, 0.0
    for part, start in _places(parts):
        chunk, inside = divmod(start, CHUNK)
        words = saving.content(part.name)[start : min(start + _PIECE, (chunk + 1) * CHUNK)]
        # The time of the processor: another's turn in between would look like a slow codec.
        began = time.thread_time()
        base, reading = None, 0.0
        if part.base is not None:
            whole = memoryview(bytearray(min(CHUNK, part.leaf.n_bytes - chunk * CHUNK)))
            part.base.source.read(chunk, whole)
            base, reading = whole[inside : inside + words.nbytes], (time.thread_time() - began) * words.nbytes / whole.nbytes
        read = time.thread_time()
        codec, planes = begin(part, words, base)
        encoded = time.thread_time()
        if codec != Codec.RAW:
            out, other = np.empty(words.nbytes, np.uint8), base if codec.needs_base else None
            decode_chunk(codec, part.leaf.dtype, [memoryview(each) for each in planes], other, out.data)
        decode += time.thread_time() - encoded + (reading if codec.needs_base else 0.0)
        encode += encoded - read + reading
        n_in += words.nbytes
        n_out += sum(map(len, planes))
    return Sample(n_out / n_in, encode / n_in, decode / n_in) if n_in else Sample(0.0, 0.0, 0.0)


def _places(parts: Sequence[Part]) -> Iterator[tuple[Part, int]]:
    """Parts and places in them, at whole words."""
    ends = np.cumsum([part.n_bytes for part in parts], dtype=np.int64)
    total = int(ends[-1]) if parts else 0
    distance = max(_PIECE, -(-total // _PIECES))
    for place in range(min(distance, total) // 2, total, distance):
        number = int(np.searchsorted(ends, place, side="right"))
        part = parts[number]
        start = max(0, min(place - int(ends[number]) + part.n_bytes, part.n_bytes - _PIECE))
        yield part, start - start % 16


def _hashing(saving: Saving) -> float:
    """Seconds to hash a byte here and now, in which those of reading and writing one are reckoned."""
    for name, leaf in saving.record.leaves.items():
        if leaf.n_bytes >= CHUNK:
            content = saving.content(name)[: 4 * _PIECE]
            began = time.thread_time()
            leaf_hash(leaf.dtype, leaf.shape, content)
            return (time.thread_time() - began) / (4 * _PIECE)
    return 1e-9
