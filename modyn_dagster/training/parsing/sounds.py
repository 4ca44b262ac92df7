"""The parser ``sounds``: WAV files of PCM, read by the standard library and decoded by several threads into one array."""

import io
import wave
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.spec.learning.parsing import SoundsSpec
from modyn_dagster.training.memory import empty_aligned
from modyn_dagster.training.parsing.function import Blobs, Columns, ThreadedParts

Float32 = npt.NDArray[np.float32]


class Sounds:
    """The parser ``sounds``: ``features`` of shape ``[n, channels, samples]``, float32 from -1 to 1.

    Files are PCM of 8, 16, 24 or 32 bits. A file of another rate is refused, as resampling would be a choice of its own.
    """

    def __init__(self, spec: SoundsSpec) -> None:
        self._spec = spec
        self._pieces = ThreadedParts(spec.workers.count)

    def __call__(self, blobs: Blobs) -> Columns:
        """Decode sounds; ``ParseFailed`` for the first that cannot be decoded."""
        batch = empty_aligned((len(blobs), self._spec.channels, self._spec.samples), np.float32)
        self._pieces.decode(blobs, batch, self._decode)
        return {"features": batch}

    def close(self) -> None:
        """End the threads."""
        self._pieces.close()

    def _decode(self, data: Any, out: Float32) -> None:
        spec = self._spec
        with wave.open(io.BytesIO(bytes(data)), "rb") as sound:
            n_channels, width, rate, n_frames, *_ = sound.getparams()
            if rate != spec.rate:
                raise ValueError(f"it has {rate} samples per second, not {spec.rate}: convert it, or correct `rate`")
            if spec.channels not in (1, n_channels):
                raise ValueError(f"it has {n_channels} channels, not {spec.channels}")
            wanted = min(n_frames, spec.samples)
            raw = sound.readframes(wanted)
        if len(raw) != wanted * n_channels * width:
            raise ValueError(f"it ends after {len(raw) // (n_channels * width)} of {n_frames} samples")
        values = _DECODERS[width](np.frombuffer(raw, np.uint8)).reshape(-1, n_channels)
        out[:, : len(values)] = values.T if spec.channels == n_channels else values.mean(axis=1, dtype=np.float64)
        out[:, len(values) :] = 0


def _of_24_bits(raw: npt.NDArray[np.uint8]) -> Float32:
    padded = np.zeros((len(raw) // 3, 4), np.uint8)
    padded[:, 1:] = raw.reshape(-1, 3)
    return _scaled(padded.reshape(-1).view("<i4"), 31)


def _scaled(values: npt.NDArray[Any], bits: int) -> Float32:
    return (values.astype(np.float64) / 2.0**bits).astype(np.float32)


#: Decoders of raw bytes by the bytes of a sample: 8 bits are unsigned, others signed and little-endian.
_DECODERS: Final[Mapping[int, Callable[[npt.NDArray[np.uint8]], Float32]]] = {
    1: lambda raw: _scaled(raw.astype(np.int16) - 128, 7),
    2: lambda raw: _scaled(raw.view("<i2"), 15),
    3: _of_24_bits,
    4: lambda raw: _scaled(raw.view("<i4"), 31),
}
