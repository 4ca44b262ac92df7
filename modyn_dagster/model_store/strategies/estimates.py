"""Estimated costs of the strategies for one model, by the measured cost of encoding and decoding samples of it.

Source: the choice that MMlib leaves as future work (Strassenburg et al., EDBT 2022, section 6).
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
from modyn_dagster.model_store.format.metadata import ModelMetadata
from modyn_dagster.model_store.provenance.retraining import lineage_to_train
from modyn_dagster.model_store.strategies.encoding import choose_codec
from modyn_dagster.model_store.strategies.plan import MIN_ENCODED_BYTES, PlannedTensor
from modyn_dagster.model_store.strategies.settings import ChangedLayers, Delta, Retrain, Snapshot, Strategy
from modyn_dagster.model_store.strategies.writer import MIN_COMPRESSED_BYTES, ModelWriter

# Number and bytes of the pieces encoded as a sample: a small share of the time to save a model.
_PIECES: Final = 4
_PIECE: Final = 64 << 10
# Fixed time to encode or decode a tensor.
_TENSOR_SECONDS: Final = 1e-4
# Time to open, sync and rename a file.
_FILE_SECONDS: Final = 0.005
# Times to write and sync a byte, and to read one from the page cache, as multiples of the time to hash it.
_WRITING: Final = 5.0
_READING: Final = 2.5
# A difference above this share of the full bytes is worth a new keyframe, to which later differences are smaller.
_NEW_KEYFRAME: Final = 0.9
_RECORD_BYTES: Final = 8 << 10


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimated cost of a strategy for one model.

    Attributes:
        strategy: with its settings.
        n_bytes: of its file.
        save_seconds: to write it.
        recover_seconds: to have the model again: to read, to decode, or to train it.
    """

    strategy: Strategy
    n_bytes: float
    save_seconds: float
    recover_seconds: float

    @property
    def kind(self) -> str:
        """Name of the strategy: snapshot, changed_layers, delta or provenance."""
        return self.strategy.kind

    def __str__(self) -> str:
        times = f"{self.save_seconds:.2g} s to save, {self.recover_seconds:.2g} s to recover"
        return f"{self.strategy.kind} {self.n_bytes / 1e6:.3g} MB, {times}"


@dataclass(frozen=True, slots=True)
class CodecSample:
    """Measured cost of some pieces of a plan: stored bytes per byte, seconds per byte to encode and to decode."""

    ratio: float
    encode: float
    decode: float


def estimates(writer: ModelWriter, delta: Delta, metadata: ModelMetadata) -> Iterator[Estimate]:
    """Estimates of the strategies that apply to a model: snapshots, what a base allows, and training where a recipe is known."""
    hashing = _hashing(writer)
    raw = writer.n_bytes
    recover = raw * (1 + _READING) * hashing / writer.threads
    yield Estimate(Snapshot(compress=False), raw, _FILE_SECONDS + raw * _WRITING * hashing, recover)
    full = None
    samples: dict[object, CodecSample] = {}
    if raw >= MIN_COMPRESSED_BYTES:
        full = _estimate(writer, Snapshot(compress=True), hashing, samples)
        yield full
    for strategy in (ChangedLayers(), delta):
        if writer.base is None or writer.applicable(strategy).kind != strategy.kind:
            continue
        estimate = _estimate(writer, strategy, hashing, samples)
        if estimate.n_bytes <= _NEW_KEYFRAME * (raw if full is None else full.n_bytes):
            yield estimate
    match metadata.provenance:
        # A training restores the weights, but no extra state.
        case {"probed": True, "seconds": int() | float() as seconds} if EXTRA not in writer.record.leaves:
            base = metadata.training_base
            before = 0.0 if base is None else _seconds_before(writer, base) + raw * hashing * 4
            yield Estimate(Retrain(), _RECORD_BYTES, _FILE_SECONDS, seconds + before)


def _seconds_before(writer: ModelWriter, base: ModelId) -> float:
    """Seconds of the trainings to repeat before one that starts from this base."""
    start = writer.sources.model(base)
    trainings = [] if start.has_weights else lineage_to_train(start, writer.sources.model)[1]
    times = [(model.metadata.provenance or {}).get("seconds") for model in trainings]
    # A training that was not measured may take any time.
    return sum(float(seconds) if isinstance(seconds, int | float) else math.inf for seconds in times)


def _estimate(
    writer: ModelWriter, strategy: Delta | ChangedLayers | Snapshot, hashing: float, samples: dict[object, CodecSample]
) -> Estimate:
    parts = writer.parts(strategy)
    written = [part for part in parts if part.n_bytes >= MIN_ENCODED_BYTES]
    unencoded = sum(part.n_bytes for part in parts if part.n_bytes < MIN_ENCODED_BYTES)
    # Tensors that two strategies store in the same way are sampled once.
    key = tuple((part.name, part.base is None) for part in written)
    sample = samples[key] = samples.get(key) or _sample(writer, written)
    stored = sum(part.n_bytes for part in written)
    n_bytes = stored * sample.ratio + unencoded + 60 * len(parts) + 1000
    tensors = len(written) * _TENSOR_SECONDS
    writing = n_bytes * _WRITING * hashing + _FILE_SECONDS
    save = (stored * sample.encode + tensors) / writer.threads + writing
    # All tensors are hashed, also those in other files.
    recover = (stored * sample.decode + (writer.n_bytes + unencoded * _READING) * hashing + tensors) / writer.threads
    return Estimate(strategy, n_bytes, save, recover)


def _sample(writer: ModelWriter, parts: Sequence[PlannedTensor]) -> CodecSample:
    """Measure pieces at equal distances over all bytes, so that many small tensors do not outweigh a few large ones."""
    n_in, n_out, encode, decode = 0, 0, 0.0, 0.0
    for part, start in _sample_positions(parts):
        chunk, inside = divmod(start, CHUNK)
        words = writer.tensor_bytes(part.name)[start : min(start + _PIECE, (chunk + 1) * CHUNK)]
        # Time of this thread: a preemption would look like a slow codec.
        began = time.thread_time()
        base, reading = None, 0.0
        if part.base is not None:
            whole = memoryview(bytearray(min(CHUNK, part.leaf.n_bytes - chunk * CHUNK)))
            part.base.source.read(chunk, whole)
            base, reading = whole[inside : inside + words.nbytes], (time.thread_time() - began) * words.nbytes / whole.nbytes
        read = time.thread_time()
        codec, planes = choose_codec(part, words, base)
        encoded = time.thread_time()
        if codec != Codec.RAW:
            out, other = np.empty(words.nbytes, np.uint8), base if codec.needs_base else None
            decode_chunk(codec, part.leaf.dtype, [memoryview(plane) for plane in planes], other, out.data)
        decode += time.thread_time() - encoded + (reading if codec.needs_base else 0.0)
        encode += encoded - read + reading
        n_in += words.nbytes
        n_out += sum(map(len, planes))
    return CodecSample(n_out / n_in, encode / n_in, decode / n_in) if n_in else CodecSample(0.0, 0.0, 0.0)


def _sample_positions(parts: Sequence[PlannedTensor]) -> Iterator[tuple[PlannedTensor, int]]:
    """Parts and offsets in them, at whole words."""
    ends = np.cumsum([part.n_bytes for part in parts], dtype=np.int64)
    total = int(ends[-1]) if parts else 0
    distance = max(_PIECE, -(-total // _PIECES))
    for place in range(min(distance, total) // 2, total, distance):
        number = int(np.searchsorted(ends, place, side="right"))
        part = parts[number]
        start = max(0, min(place - int(ends[number]) + part.n_bytes, part.n_bytes - _PIECE))
        yield part, start - start % 16


def _hashing(writer: ModelWriter) -> float:
    """Seconds to hash a byte on this machine, the unit of the times to read and to write one."""
    for name, leaf in writer.record.leaves.items():
        if leaf.n_bytes >= CHUNK:
            content = writer.tensor_bytes(name)[: 4 * _PIECE]
            began = time.thread_time()
            leaf_hash(leaf.dtype, leaf.shape, content)
            return (time.thread_time() - began) / (4 * _PIECE)
    return 1e-9
