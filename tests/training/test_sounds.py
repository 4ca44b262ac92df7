"""The parser ``sounds``: SciPy as oracle, and files that are none or others than asked for."""

import io
import wave
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.io import wavfile

from modyn_dagster.errors import BadSample
from modyn_dagster.training.parsing.parser import Parsing
from tests.examples import examples
from tests.training.table import Table, spec_of
from tests.training.trained import trained

RATE = 8000


def wav(raw: bytes, *, width: int = 2, channels: int = 1, rate: int = RATE) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(channels)
        sound.setsampwidth(width)
        sound.setframerate(rate)
        sound.writeframes(raw)
    return file.getvalue()


def parsing(**fields: Any) -> Parsing:
    sounds = {"rate": RATE, "samples": 10} | fields
    return Parsing(spec_of(parser={"sounds": sounds}).parser, "p")


def decoded(blobs: list[bytes], **fields: Any) -> Any:
    table = Table({}, blobs=blobs)
    return parsing(**fields)(table.samples)["features"]


@settings(max_examples=examples(60))
@given(st.sampled_from([1, 2, 3, 4]), st.integers(1, 3), st.binary(max_size=60), st.integers(1, 12), st.booleans())
def test_samples_are_those_of_scipy(width: int, channels: int, raw: bytes, length: int, mixed: bool) -> None:
    raw = (raw + bytes(width * channels))[: (len(raw) // (width * channels) + 1) * width * channels]
    data = wav(raw, width=width, channels=channels)
    _, values = wavfile.read(io.BytesIO(data))
    scale = {"uint8": 128.0, "int16": 2.0**15, "int32": 2.0**31}[values.dtype.name]
    frames = (values.astype(np.float64).reshape(-1, channels) - (128 if width == 1 else 0)) / scale
    expected = np.zeros((1, 1 if mixed else channels, length))
    found = decoded([data], samples=length, channels=1 if mixed else channels)
    kept = frames[:length].T
    expected[0, :, : kept.shape[1]] = kept.mean(axis=0) if mixed else kept
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-7)


def test_threads_give_the_same() -> None:
    rng = np.random.default_rng(0)
    blobs = [wav(rng.bytes(2 * int(n))) for n in rng.integers(0, 20, 17)]
    assert decoded(blobs).tobytes() == decoded(blobs, workers={"count": 3}).tobytes()


@pytest.mark.parametrize(
    ("blob", "fields", "reason"),
    [
        (wav(bytes(4), rate=44100), {}, "it has 44100 samples per second, not 8000"),
        (wav(bytes(8), channels=2), {"channels": 3}, "it has 2 channels, not 3"),
        (wav(bytes(20))[:-5], {}, "it ends after 7 of 10 samples"),
        (b"no sound", {}, "EOFError|file does not start with RIFF"),
        (b"", {}, "EOFError"),
    ],
)
def test_a_sound_that_cannot_be_used_is_named_by_its_key(blob: bytes, fields: dict[str, Any], reason: str) -> None:
    table = Table({}, blobs=[wav(bytes(2)), blob])
    with pytest.raises(BadSample, match=f"sounds failed on the sample with key .*: .*({reason})") as caught:
        parsing(channels=fields.get("channels", 1))(table.samples if not fields else Table({}, blobs=[blob]).samples)
    assert caught.value.key in table.keys.tolist()


def test_a_model_learns_loud_from_quiet() -> None:
    rng = np.random.default_rng(1)
    labels = np.arange(40) % 2
    blobs = [wav((rng.normal(0, 200 + 9000 * label, 10)).astype("<i2").tobytes()) for label in labels]
    spec = spec_of(
        parser={"sounds": {"rate": RATE, "samples": 10}}, model={"name": "mlp", "hidden": [16]}, epochs=20, optimizer={"lr": 0.02}
    )
    found = trained(Table({}, labels=labels, blobs=blobs), spec)
    assert found.losses[-1] < 0.5 * found.losses[0]
