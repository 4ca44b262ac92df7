"""Limits on images: what a header claims is believed only as far as memory and bytes allow."""

import io
import tracemalloc
from contextlib import closing

import numpy as np
import pytest
from PIL import Image

from modyn_dagster.errors import ConfigError, ModynError
from modyn_dagster.spec.learning.parsing import ImageParserSpec
from modyn_dagster.training.parsing.image_limits import BYTES, PIXELS, ImageLimits
from modyn_dagster.training.parsing.parser import Parsing


def encoded(kind: str, height: int, width: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.zeros((height, width, 3), dtype=np.uint8)).save(file, kind)
    return file.getvalue()


def lying(kind: str, height: int, width: int) -> bytes:
    """A small image whose header claims another size."""
    data = bytearray(encoded(kind, 16, 16))
    if kind == "JPEG":
        start = data.index(b"\xff\xc0") + 5
        data[start : start + 4] = height.to_bytes(2, "big") + width.to_bytes(2, "big")
    else:
        data[18:26] = width.to_bytes(4, "little") + height.to_bytes(4, "little")
    return bytes(data)


def refusal(data: bytes) -> str:
    with closing(Parsing(ImageParserSpec.model_validate({"images": {"size": [8, 8]}}), "pipeline p")) as parse:
        tracemalloc.start()
        with pytest.raises(ModynError) as caught:
            parse.of_blobs(np.zeros(1, dtype=np.uint64), [data])
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 8 << 20
    return str(caught.value)


@pytest.mark.parametrize("kind", ["JPEG", "BMP"])
def test_a_header_that_claims_too_many_pixels_is_refused_before_decoding(kind: str) -> None:
    assert f"claims 8,500 x 8,500 pixels, expected at most 67,108,864 in all; {PIXELS}" in refusal(lying(kind, 8_500, 8_500))


def test_a_jpeg_that_claims_more_pixels_than_its_bytes_can_hold_is_refused() -> None:
    data = lying("JPEG", 8_000, 8_000)
    assert f"8,000 x 8,000 pixels, more than {len(data):,} bytes of JPEG can hold" in refusal(data)


def test_the_smallest_file_of_a_large_image_is_not_taken_for_a_lie() -> None:
    data = encoded("JPEG", 2_000, 2_000)
    with closing(Parsing(ImageParserSpec.model_validate({"images": {"size": [8, 8]}}), "pipeline p")) as parse:
        assert parse.of_blobs(np.zeros(1, dtype=np.uint64), [data])["features"].shape == (1, 3, 8, 8)


def test_limits_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encoded("PNG", 100, 100)
    monkeypatch.setenv(PIXELS, "9999")
    assert "claims 100 x 100 pixels, expected at most 9,999" in refusal(data)
    monkeypatch.setenv(PIXELS, "10000")
    monkeypatch.setenv(BYTES, str(len(data) - 1))
    assert f"{len(data):,} bytes, expected at most {len(data) - 1:,}; {BYTES}" in refusal(data)
    assert ImageLimits.from_environment({BYTES: ""}) == ImageLimits()


@pytest.mark.parametrize("text", ["0", "-1", "1e6", "many", "9" * 5_000, "178956971"])
def test_a_limit_that_is_no_number_in_range_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match=rf"environment: {PIXELS}: must be a whole number from 1 to 178956970"):
        ImageLimits.from_environment({PIXELS: text})
