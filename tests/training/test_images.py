"""Images: every format to the array that the spec asks for, and what cannot be decoded."""

import io
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from modyn_dagster.errors import BadSample
from modyn_dagster.spec.learning.parsing import ImageParserSpec
from modyn_dagster.training.parsing.parser import Parsing
from tests.examples import examples

Pixels = npt.NDArray[np.uint8]


def smooth(height: int, width: int, seed: int = 0) -> Pixels:
    """A picture without sharp edges, so that ways of scaling it hardly differ."""
    coarse = np.random.default_rng(seed).integers(0, 256, (3, 3, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))


def encoded(pixels: npt.NDArray[Any], kind: str = "PNG", mode: str | None = None, **options: Any) -> bytes:
    image = Image.fromarray(pixels)
    file = io.BytesIO()
    (image.convert(mode) if mode else image).save(file, kind, **options)
    return file.getvalue()


def decoded(blobs: list[bytes], **spec: Any) -> npt.NDArray[Any]:
    with closing(Parsing(ImageParserSpec.model_validate({"images": spec}), "pipeline p")) as parse:
        return parse.of_blobs(np.arange(len(blobs), dtype=np.uint64), blobs)["features"]


def test_an_image_of_the_right_size_keeps_its_pixels_in_every_layout_and_dtype() -> None:
    pixels = smooth(7, 5)
    blobs = [encoded(pixels), encoded(pixels[::-1])]
    for count in (1, 2):
        found = decoded(blobs, size=[7, 5], layout="hwc", workers={"count": count})
        assert found.dtype == np.uint8
        np.testing.assert_array_equal(found, [pixels, pixels[::-1]])
    np.testing.assert_array_equal(decoded(blobs, size=[7, 5]), np.array([pixels, pixels[::-1]]).transpose(0, 3, 1, 2))
    floats = decoded(blobs, size=[7, 5], dtype="float32")
    assert floats.dtype == np.float32
    np.testing.assert_array_equal(floats[0], pixels.transpose(2, 0, 1) / np.float32(255))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("layout", ["chw", "hwc"])
def test_a_jpeg_of_the_right_size_has_the_pixels_that_pillow_finds(channels: int, layout: str) -> None:
    jpeg = encoded(smooth(48, 64), "JPEG", quality=90)
    found = decoded([jpeg], size=[48, 64], channels=channels, layout=layout)[0]
    image = Image.open(io.BytesIO(jpeg))
    image.draft("RGB" if channels == 3 else "L", None)
    expected = np.asarray(image).reshape(48, 64, channels)
    np.testing.assert_array_equal(found, expected.transpose(2, 0, 1) if layout == "chw" else expected)


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
@given(
    stored=st.tuples(st.integers(30, 90), st.integers(30, 90)),
    size=st.tuples(st.integers(4, 40), st.integers(4, 40)),
    resize=st.sampled_from(["stretch", "cover", "contain"]),
    seed=st.integers(0, 9),
)
@settings(max_examples=examples(40))
def test_resizing_keeps_the_picture(kind: str, stored: tuple[int, int], size: tuple[int, int], resize: str, seed: int) -> None:
    """Also where a JPEG is decoded at a fraction of its size: within a few levels of resizing all its pixels."""
    pixels = smooth(*stored, seed)
    options: dict[str, Any] = {"quality": 100, "subsampling": 0} if kind == "JPEG" else {}
    file = encoded(pixels, kind, **options)
    found = decoded([file], size=size, resize=resize, layout="hwc")[0]
    expected = by_hand(Image.fromarray(pixels), size, resize)
    assert found.shape == expected.shape
    assert np.abs(found.astype(int) - expected).mean() < 8


def by_hand(image: Image.Image, size: tuple[int, int], resize: str) -> npt.NDArray[np.int64]:
    """Scale, then cut or pad in the middle, with float sizes rounded late."""
    rows, columns = size
    if resize == "stretch":
        return np.asarray(image.resize((columns, rows), Image.Resampling.BILINEAR)).astype(np.int64)
    if resize == "cover":
        scale = max(rows / image.height, columns / image.width)
        h, w = rows / scale, columns / scale
        top, left = (image.height - h) / 2, (image.width - w) / 2
        box = (max(0.0, left), max(0.0, top), min(image.width, left + w), min(image.height, top + h))
        return np.asarray(image.resize((columns, rows), Image.Resampling.BILINEAR, box)).astype(np.int64)
    scale = min(rows / image.height, columns / image.width)
    h, w = max(1, min(rows, round(image.height * scale))), max(1, min(columns, round(image.width * scale)))
    whole = np.zeros((rows, columns, 3), dtype=np.int64)
    top, left = (rows - h) // 2, (columns - w) // 2
    whole[top : top + h, left : left + w] = np.asarray(image.resize((w, h), Image.Resampling.BILINEAR))
    return whole


def test_a_large_jpeg_is_decoded_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    import simplejpeg

    asked: list[tuple[int, int]] = []
    decode = simplejpeg.decode_jpeg

    def watched(*args: Any, **options: Any) -> Any:
        asked.append((options["min_height"], options["min_width"]))
        return decode(*args, **options)

    monkeypatch.setattr(simplejpeg, "decode_jpeg", watched)
    jpeg = encoded(smooth(160, 200), "JPEG")
    for size in ([160, 200], [81, 100], [80, 100], [40, 50], [41, 50], [10, 10]):
        decoded([jpeg], size=size)
    assert asked == [(0, 0), (0, 0), (80, 100), (40, 50), (80, 100), (20, 25)]


MODES: dict[str, Callable[[], bytes]] = {
    "grey": lambda: encoded(np.full((4, 4), 200, np.uint8)),
    "palette": lambda: encoded(np.full((4, 4, 3), 200, np.uint8), "GIF"),
    "alpha": lambda: encoded(np.full((4, 4, 4), 200, np.uint8)),
    "grey and alpha": lambda: encoded(np.full((4, 4, 3), 200, np.uint8), mode="LA"),
    "16 bits": lambda: encoded(np.full((4, 4), 200 << 8 | 99, np.uint16)),
    "16 bits, TIFF": lambda: encoded(np.full((4, 4), 200 << 8 | 99, np.uint16), "TIFF"),
    "grey JPEG": lambda: encoded(np.full((4, 4), 200, np.uint8), "JPEG"),
    "CMYK JPEG": lambda: encoded(np.full((4, 4, 3), 200, np.uint8), "JPEG", mode="CMYK"),
    "RGB JPEG": lambda: encoded(np.full((4, 4, 3), 200, np.uint8), "JPEG", keep_rgb=True),
    "WebP": lambda: encoded(np.full((4, 4, 3), 200, np.uint8), "WEBP", lossless=True),
    "BMP": lambda: encoded(np.full((4, 4, 3), 200, np.uint8), "BMP"),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("channels", [1, 3])
def test_every_kind_of_pixel_becomes_what_is_asked_for(mode: str, channels: int) -> None:
    found = decoded([MODES[mode]()], size=[4, 4], channels=channels)
    assert found.shape == (1, channels, 4, 4)
    np.testing.assert_allclose(found, 200, atol=1)


def test_pixels_of_32_bits_are_refused() -> None:
    with pytest.raises(BadSample, match=r"images failed on the sample with key 0: .*32 bits \(mode F\)"):
        decoded([encoded(np.zeros((4, 4), np.float32), "TIFF")], size=[4, 4])


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(
    "broken", [b"", b"no image", "cut JPEG", "cut PNG", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"]
)
def test_the_first_image_that_cannot_be_decoded_is_named(broken: bytes | str, count: int) -> None:
    good, jpeg = encoded(smooth(9, 9)), encoded(smooth(60, 60), "JPEG")
    bad = {"cut JPEG": jpeg[: len(jpeg) // 2], "cut PNG": good[:-30]}.get(str(broken), broken)
    assert isinstance(bad, bytes)
    with pytest.raises(BadSample, match=r"pipeline p: training.parser: images failed on the sample with key 3: ") as caught:
        decoded([good, jpeg, good, bad, good, bad], size=[8, 8], workers={"count": count})
    assert caught.value.key == 3


def test_a_harmless_fault_of_a_jpeg_is_overlooked_as_pillow_does() -> None:
    jpeg = encoded(smooth(16, 16), "JPEG")
    found = decoded([jpeg[:-2] + b"\0\0" + jpeg[-2:], jpeg], size=[16, 16])
    np.testing.assert_array_equal(found[0], found[1])


def test_the_result_does_not_depend_on_the_threads() -> None:
    blobs = [encoded(smooth(20 + i, 30, i), "JPEG" if i % 2 else "PNG") for i in range(9)]
    one, many = (decoded(blobs, size=[12, 10], resize="contain", workers={"count": count}) for count in (1, 4))
    np.testing.assert_array_equal(one, many)
