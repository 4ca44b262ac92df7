"""Texts become numbers of hashed n-grams: the same everywhere, in the order of the text, of one length."""

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.data.samples import Samples
from modyn_dagster.errors import BadSample, ConfigError
from modyn_dagster.keys import keys_of
from modyn_dagster.spec.learning.parsing import TextParserSpec, TextSpec
from modyn_dagster.training.parsing.parser import Parsing
from modyn_dagster.training.parsing.texts import Texts


def number(gram: str, buckets: int = 65_536) -> int:
    return int(xxhash.xxh32(gram.encode()).intdigest()) % buckets + 1


def encoded(text: str, **fields: object) -> list[int]:
    numbers: list[int] = Texts(TextSpec.model_validate(fields)).encode([text])[0].tolist()
    return numbers


def samples(columns: dict[str, np.ndarray] | None = None, blobs: list[bytes] | None = None) -> Samples:
    n = len(blobs) if blobs is not None else len(next(iter((columns or {}).values())))
    times = np.zeros(n, dtype="datetime64[us]")
    return Samples(keys_of(0, np.arange(n)), times, None, None, columns or {}, blobs)


def test_words_then_pairs_of_words() -> None:
    grams = ["a", "red", "cat", "a red", "red cat"]
    assert encoded("A red, cat!", ngrams=[1, 2], length=6) == [*map(number, grams), 0]


def test_characters() -> None:
    assert encoded("Ab c", of="characters", ngrams=[2], lowercase=False, length=3) == [number("Ab"), number("b "), number(" c")]


@given(text=st.text(max_size=50), length=st.integers(1, 20), buckets=st.integers(1, 100))
def test_any_text_is_numbers_up_to_the_buckets_and_then_zeros(text: str, length: int, buckets: int) -> None:
    found = encoded(text, length=length, buckets=buckets)
    used = [value for value in found if value]
    assert len(found) == length
    assert found == used + [0] * (length - len(used))
    assert all(1 <= value <= buckets for value in used)


def test_columns_are_joined_and_missing_ones_are_empty() -> None:
    parser = TextParserSpec(text=TextSpec(columns=["title", "body"], length=3))
    columns = {"title": np.array(["one", None], dtype=object), "body": np.array(["two", "three"], dtype=object)}
    found = Parsing(parser, "pipeline p")(samples(columns))["features"]
    assert found.tolist() == [[number("one"), number("two"), 0], [number("three"), 0, 0]]


def test_files_are_utf8_or_named() -> None:
    parsing = Parsing(TextParserSpec(text=TextSpec(length=1)), "pipeline p")
    assert parsing(samples(blobs=["größe".encode()]))["features"].tolist() == [[number("größe")]]
    with pytest.raises(BadSample, match="UnicodeDecodeError"):
        parsing(samples(blobs=[b"fine", b"\xff"]))


def test_a_column_that_is_not_there_is_named() -> None:
    parsing = Parsing(TextParserSpec(text=TextSpec(columns=["headline"])), "pipeline p")
    with pytest.raises(ConfigError, match=r"training\.parser\.text\.columns.*known: title.*'headline'"):
        parsing(samples({"title": np.array(["x"], dtype=object)}))
