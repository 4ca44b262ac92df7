"""Texts to numbers of hashed n-grams: no vocabulary to build, to keep or to download."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import xxhash

from modyn_dagster.spec.parsing import TextSpec
from modyn_dagster.training.parsing.function import Blobs, Columns, ParseFailed, reason_of

_WORD: Final = re.compile(r"\w+")


class Texts:
    """The parser ``text``: ``features`` is ``int64[n, length]``, numbers 1 to ``buckets`` of a text's n-grams, then zeros.

    An n-gram's number is its XXH32, modulo the buckets, plus 1: the same on every machine.
    """

    def __init__(self, spec: TextSpec) -> None:
        self._spec = spec

    def __call__(self, blobs: Blobs) -> Columns:
        """Of samples that are UTF-8; ``ParseFailed`` for the first that is not."""
        texts = []
        for position in range(len(blobs)):
            try:
                texts.append(bytes(blobs[position]).decode("utf-8"))
            except UnicodeDecodeError as error:
                raise ParseFailed(position, reason_of(error)) from error
        return {"features": self.encode(texts)}

    def of_columns(self, columns: Columns) -> Columns:
        """Of text columns, joined by a space; a missing value is an empty text. ``KeyError`` for a column that is not there."""
        parts = [columns[name].tolist() for name in self._spec.columns or ()]
        texts = [" ".join(part for part in row if isinstance(part, str)) for row in zip(*parts, strict=True)]
        return {"features": self.encode(texts)}

    def encode(self, texts: Sequence[str]) -> npt.NDArray[Any]:
        """``int64[len(texts), length]``."""
        found = np.zeros((len(texts), self._spec.length), dtype=np.int64)
        for row, text in enumerate(texts):
            numbers = [self._number(gram) for gram, _ in zip(self._grams(text), range(self._spec.length))]
            found[row, : len(numbers)] = numbers
        return found

    def close(self) -> None:
        """Nothing to end."""

    def _grams(self, text: str) -> Iterator[str]:
        text = text.lower() if self._spec.lowercase else text
        pieces: Sequence[str] = _WORD.findall(text) if self._spec.of == "words" else text
        joint = " " if self._spec.of == "words" else ""
        for n in self._spec.ngrams:
            yield from (joint.join(pieces[i : i + n]) for i in range(len(pieces) - n + 1))

    def _number(self, gram: str) -> int:
        return int(xxhash.xxh32_intdigest(gram.encode()) % self._spec.buckets) + 1
