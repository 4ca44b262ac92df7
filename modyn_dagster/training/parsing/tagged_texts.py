"""Texts with a tag for each word: the parser ``tokenizer`` with ``tags``."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.errors import ConfigError
from modyn_dagster.spec.learning.parsing import TokenizerSpec
from modyn_dagster.spec.tasks.objectives import IGNORED
from modyn_dagster.training.parsing.function import Columns, NotArrays, ParseFailed, reason_of
from modyn_dagster.training.parsing.texts import TokenizerParser

#: Tokens of a text, and the place of the word that each belongs to; None for none.
Placed = tuple[npt.NDArray[Any], Sequence[int | None]]
#: Tags that an error names.
_SHOWN: Final = 8


class TaggedTexts(TokenizerParser):
    """The parser ``tokenizer`` with tags: ``features`` is ``int64[n, 2, length]``, tokens and the numbers of their tags.

    A word that becomes several tokens gives its tag to the first. The others, the tokenizer's special tokens and padding have
    none, as has a text whose tags are missing.

    Args:
        spec: spec of the tokenizer, with the column of the tags.
        names: names of the tags, by number.
        source: name of the pipeline, for errors.

    Raises ``ConfigError`` for a tokenizer of transformers that does not say which token belongs to which word.
    """

    def __init__(self, spec: TokenizerSpec, names: Sequence[str], source: str) -> None:
        super().__init__(spec, source)
        self._column, self._number_of = str(spec.tags), {name: number for number, name in enumerate(names)}
        self._of_words = hasattr(self._call, "pad_token_id")
        if self._of_words and not getattr(self._call, "is_fast", False):
            rule = "needs a fast tokenizer (tokenizer.json), which says what token belongs to what word"
            raise ConfigError(source, "training.parser.tokenizer.tags", self._column, rule)

    def of_columns(self, columns: Columns) -> Columns:
        """Parse words and tags.

        Raises ``KeyError`` for a missing column, ``ParseFailed`` for the first text with an unknown tag, with another number of
        tags than words, or that the tokenizer fails on.
        """
        cells = columns[self._column].tolist()
        words = [text.split() for text in self.texts_of(columns)]
        tags = [self._numbers(cell, len(row), position) for position, (cell, row) in enumerate(zip(cells, words, strict=True))]
        length = self._spec.length
        found = np.empty((len(words), 2, length), dtype=np.int64)
        found[:, 0], found[:, 1] = self._pad, IGNORED
        for row, (tokens, places), own in zip(found, self._tokens(words), tags, strict=True):
            row[0, : len(tokens)] = tokens
            row[1, : len(places)] = _of_first_tokens(places, own)
        return {"features": found}

    def _numbers(self, cell: object, n_words: int, position: int) -> list[int]:
        """Numbers of the tags of a text; ``IGNORED`` for all words of a text without any."""
        if not isinstance(cell, str):
            return [IGNORED] * n_words
        names = cell.split()
        if len(names) != n_words:
            raise ParseFailed(position, f"words: {n_words}, tags in column {self._column!r}: {len(names)}")
        if strange := [name for name in names if name not in self._number_of]:
            known = ", ".join(list(self._number_of)[:_SHOWN]) + (", …" if len(self._number_of) > _SHOWN else "")
            raise ParseFailed(position, f"column {self._column!r} has the tag {strange[0]!r}; training.loss.tags are {known}")
        return [self._number_of[name] for name in names]

    def _tokens(self, words: list[list[str]]) -> list[Placed]:
        try:
            return self._of_transformers(words) if self._of_words else self._one_of_each(words)
        except (NotArrays, ParseFailed):
            raise
        except Exception as error:
            for position, row in enumerate(words):
                self._require_tokens(row, position)
            raise ParseFailed(None, reason_of(error)) from error

    def _require_tokens(self, row: list[str], position: int) -> None:
        try:
            _ = self._of_transformers([row]) if self._of_words else self._one_of_each([row])
        except Exception as error:
            raise ParseFailed(position, reason_of(error)) from error

    def _of_transformers(self, words: list[list[str]]) -> list[Placed]:
        with self._turn:
            made: Any = self._call(words, is_split_into_words=True, **self._options)
        return [(np.asarray(tokens), made.word_ids(row)) for row, tokens in enumerate(made["input_ids"])]

    def _one_of_each(self, words: list[list[str]]) -> list[Placed]:
        rows = self.rows([" ".join(row) for row in words])
        for position, (row, tokens) in enumerate(zip(words, rows, strict=True)):
            if len(tokens) != len(row):
                reason = f"{self._spec.factory} makes {len(tokens)} tokens of {len(row)} words, and tags need one for each"
                raise ParseFailed(position, reason)
        length = self._spec.length
        return [(tokens[:length], list(range(len(tokens)))[:length]) for tokens in rows]


def _of_first_tokens(places: Sequence[int | None], tags: Sequence[int]) -> list[int]:
    """Tags of tokens: that of its word for the first token of each.

    >>> _of_first_tokens([None, 0, 1, 1, None], [5, 6])
    [-100, 5, 6, -100, -100]
    """
    before = [None, *places][:-1]
    return [IGNORED if place is None or place == last else tags[place] for place, last in zip(places, before, strict=True)]
