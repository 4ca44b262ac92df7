"""Texts to numbers of hashed n-grams: no vocabulary to build, to keep or to download."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import xxhash

from modyn_dagster.spec.parsing import TextSpec
from modyn_dagster.training.parsing.of_texts import OfTexts

_WORD: Final = re.compile(r"\w+")


class Texts(OfTexts):
    """The parser ``text``: ``features`` is ``int64[n, length]``, numbers 1 to ``buckets`` of a text's n-grams, then zeros.

    An n-gram's number is its XXH32, modulo the buckets, plus 1: the same on every machine.
    """

    def __init__(self, spec: TextSpec) -> None:
        super().__init__(spec.columns)
        self._spec = spec

    def encode(self, texts: Sequence[str]) -> npt.NDArray[Any]:
        """``int64[len(texts), length]``."""
        found = np.zeros((len(texts), self._spec.length), dtype=np.int64)
        for row, text in enumerate(texts):
            numbers = [self._number(gram) for gram, _ in zip(self._grams(text), range(self._spec.length))]
            found[row, : len(numbers)] = numbers
        return found

    def _grams(self, text: str) -> Iterator[str]:
        text = text.lower() if self._spec.lowercase else text
        pieces: Sequence[str] = _WORD.findall(text) if self._spec.of == "words" else text
        joint = " " if self._spec.of == "words" else ""
        for n in self._spec.ngrams:
            yield from (joint.join(pieces[i : i + n]) for i in range(len(pieces) - n + 1))

    def _number(self, gram: str) -> int:
        return int(xxhash.xxh32_intdigest(gram.encode()) % self._spec.buckets) + 1
