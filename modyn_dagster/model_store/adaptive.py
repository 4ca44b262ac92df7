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

from modyn_dagster.model_store.about import About
from modyn_dagster.model_store.codec import CHUNK, decode_chunk, encode_chunk
from modyn_dagster.model_store.encoding import best_codec, read_chunk
from modyn_dagster.model_store.hash_tree import leaf_hash
from modyn_dagster.model_store.planning import Part
from modyn_dagster.model_store.saving import SMALL, Saving
from modyn_dagster.model_store.strategies import Adaptive, ChangedLayers, Delta, Retrain, Snapshot, Strategy

# Chunks that are encoded to learn what the others will cost.
_SAMPLE: Final = 6
# Opening, syncing and renaming a file.
_FILE_SECONDS: Final = 0.005
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
    yield Estimate(Snapshot(compress=False), raw, _FILE_SECONDS + 2 * raw * hashing, raw * 2 * hashing / saving.threads)
    full = None
    if raw >= SMALL:
        full = _estimate(saving, Snapshot(compress=True), hashing)
        yield full
    for strategy in (ChangedLayers(), adaptive.delta):
        if saving.base is None or saving.settled(strategy).kind != strategy.kind:
            continue
        found = _estimate(saving, strategy, hashing)
        if found.n_bytes <= _NEW_KEYFRAME * (raw if full is None else full.n_bytes):
            yield found
    match about.provenance:
        case {"probed": True, "seconds": int() | float() as seconds}:
            before = 0.0 if about.start is None else _trained_before(saving) + raw * hashing * 4
            yield Estimate(Retrain(), _RECORD_BYTES, _FILE_SECONDS, seconds + before)


def _trained_before(saving: Saving) -> float:
    """Seconds of the trainings that have to be done again before this one: of bases without weights."""
    total, base = 0.0, saving.base
    while base is not None and not base.has_weights:
        seconds = (base.about.provenance or {}).get("seconds")
        # How long one takes that was not measured, nobody knows.
        total += float(seconds) if isinstance(seconds, int | float) else math.inf
        base = None if base.about.start is None else saving.sources.model(base.about.start)
    return total


def _estimate(saving: Saving, strategy: Delta | ChangedLayers | Snapshot, hashing: float) -> Estimate:
    parts = saving.parts(strategy)
    stored = sum(part.n_bytes for part in parts)
    sample = _sample(saving, [part for part in parts if part.n_bytes])
    n_bytes = stored * sample.ratio + 60 * len(parts) + 1000
    writing = n_bytes * hashing + _FILE_SECONDS
    save = stored * sample.encode / saving.threads + writing
    # Everything is hashed, also what lies elsewhere.
    recover = (stored * sample.decode + saving.n_bytes * hashing) / saving.threads
    return Estimate(strategy, n_bytes, save, recover)


def _sample(saving: Saving, parts: Sequence[Part]) -> Sample:
    chunks = [(part, start) for part in parts for start in range(0, part.leaf.n_bytes, CHUNK)]
    chosen = chunks[:: max(1, len(chunks) // _SAMPLE)][:_SAMPLE]
    if not chosen:
        return Sample(0.0, 0.0, 0.0)
    n_in, n_out, encode, decode = 0, 0, 0.0, 0.0
    for part, start in chosen:
        content = saving.content(part.name)
        first = None if part.base is None else read_chunk(part.base, 0, min(CHUNK, part.leaf.n_bytes))
        codec = best_codec(part, content, first)
        words = content[start : start + CHUNK]
        began = time.perf_counter()
        base = read_chunk(part.base, start // CHUNK, words.nbytes) if part.base is not None and codec.needs_base else None
        reading = time.perf_counter() - began
        planes = encode_chunk(codec, part.leaf.dtype, words, base)
        encoded = time.perf_counter()
        decode_chunk(codec, part.leaf.dtype, [memoryview(each) for each in planes], base, np.empty(words.nbytes, np.uint8).data)
        decode += reading + time.perf_counter() - encoded
        encode += encoded - began
        n_in += words.nbytes
        n_out += sum(map(len, planes))
    return Sample(n_out / n_in, encode / n_in, decode / n_in)


def _hashing(saving: Saving) -> float:
    """Seconds to hash a byte here and now: about those of reading it from the page cache, too."""
    for name, leaf in saving.record.leaves.items():
        if leaf.n_bytes >= CHUNK:
            content = saving.content(name)[:CHUNK]
            began = time.perf_counter()
            leaf_hash(leaf.dtype, leaf.shape, content)
            return (time.perf_counter() - began) / CHUNK
    return 1e-9
