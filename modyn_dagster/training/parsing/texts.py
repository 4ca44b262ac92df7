"""Parsers of texts to token numbers: hashed n-grams, and tokenizers of the project or of transformers."""

import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import xxhash

from modyn_dagster.errors import ConfigError, MissingExtra
from modyn_dagster.imports import import_callable
from modyn_dagster.settings import Settings
from modyn_dagster.spec.learning.parsing import TextSpec, TokenizerSpec
from modyn_dagster.training.parsing.function import Blobs, Columns, NotArrays, ParseFailed, reason_of


class TextParser(ABC):
    """A parser that makes ``features`` of texts.

    Args:
        columns: text columns, joined by a space; None for samples of UTF-8 bytes.
    """

    def __init__(self, columns: Sequence[str] | None) -> None:
        self.columns = columns

    def __call__(self, blobs: Blobs) -> Columns:
        """Parse samples of UTF-8 text; ``ParseFailed`` for the first that is not."""
        texts = []
        for position in range(len(blobs)):
            try:
                texts.append(bytes(blobs[position]).decode("utf-8"))
            except UnicodeDecodeError as error:
                raise ParseFailed(position, reason_of(error)) from error
        return {"features": self.encode(texts)}

    def of_columns(self, columns: Columns) -> Columns:
        """Parse text columns; a missing value is an empty text. ``KeyError`` for a missing column."""
        return {"features": self.encode(self.texts_of(columns))}

    def texts_of(self, columns: Columns) -> list[str]:
        """Join the text columns of each sample; ``KeyError`` for a missing column."""
        parts = [columns[name].tolist() for name in self.columns or ()]
        return [" ".join(part for part in row if isinstance(part, str)) for row in zip(*parts, strict=True)]

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> npt.NDArray[Any]:
        """Encode texts: ``int64[len(texts), length]``."""

    def close(self) -> None:  # noqa: B027 - there is nothing to end
        """Nothing to end."""


_WORD: Final = re.compile(r"\w+")


class Texts(TextParser):
    """The parser ``text``: ``features`` is ``int64[n, length]``, numbers 1 to ``buckets`` of a text's n-grams, then zeros.

    An n-gram's number is its XXH32, modulo the buckets, plus 1: the same on every machine.
    """

    def __init__(self, spec: TextSpec) -> None:
        super().__init__(spec.columns)
        self._spec = spec

    def encode(self, texts: Sequence[str]) -> npt.NDArray[Any]:
        """Encode texts: ``int64[len(texts), length]``."""
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


_FIELD = "training.parser.tokenizer"


class TokenizerParser(TextParser):
    """The parser ``tokenizer``: ``features`` is ``int64[n, length]``, a text's tokens, then the number that fills up.

    A tokenizer of transformers truncates texts itself, and so keeps the special tokens at their end.

    Args:
        spec: spec of the tokenizer.
        source: name of the pipeline, for errors.
    """

    def __init__(self, spec: TokenizerSpec, source: str) -> None:
        super().__init__(spec.columns)
        self._spec, self._call = spec, _tokenizer(spec, source)
        pad = getattr(self._call, "pad_token_id", None)
        self._pad = spec.pad if spec.pad is not None else int(pad or 0)
        self._options = {"truncation": True, "max_length": spec.length} if hasattr(self._call, "pad_token_id") else {}
        # Tokenizers of transformers store the truncation length, and refuse concurrent threads.
        self._turn = threading.Lock()

    def encode(self, texts: Sequence[str]) -> npt.NDArray[Any]:
        """Encode texts: ``int64[len(texts), length]``; ``ParseFailed`` for the first text that the tokenizer fails on."""
        try:
            rows = [row[: self._spec.length] for row in self.rows(list(texts))]
        except NotArrays:
            raise
        except Exception as error:
            for position, text in enumerate(texts):
                self._require(text, position)
            raise ParseFailed(None, reason_of(error)) from error
        found = np.full((len(texts), self._spec.length), self._pad, dtype=np.int64)
        for row, numbers in zip(found, rows, strict=True):
            row[: len(numbers)] = numbers
        return found

    def _require(self, text: str, position: int) -> None:
        try:
            self.rows([text])
        except Exception as error:
            raise ParseFailed(position, reason_of(error)) from error

    def rows(self, texts: list[str]) -> list[npt.NDArray[Any]]:
        """Tokens of each text; ``NotArrays`` where the tokenizer returns something else."""
        with self._turn:
            returned = self._call(texts, **self._options)
        listed = returned["input_ids"] if isinstance(returned, Mapping) else returned
        rows = [np.asarray(numbers) for numbers in listed]
        if len(rows) != len(texts) or any(row.ndim != 1 or (len(row) and row.dtype.kind not in "iu") for row in rows):
            raise NotArrays(f"must return a list of whole numbers for each of {len(texts)} texts")
        return rows


def _tokenizer(spec: TokenizerSpec, source: str) -> Callable[..., Any]:
    if spec.path is not None:
        return _from_folder(spec.path, source)
    factory = import_callable(str(spec.factory), source=source, field=f"{_FIELD}.factory")
    try:
        made = factory(**spec.config)
    except Exception as error:
        raise ConfigError(source, f"{_FIELD}.config", spec.config, f"{spec.factory} refused it: {reason_of(error)}") from error
    if not callable(made):
        raise ConfigError(source, f"{_FIELD}.factory", spec.factory, f"must return a callable, not {type(made).__name__}")
    return made  # type: ignore[no-any-return]  # just seen to be callable


def _from_folder(path: str, source: str) -> Callable[..., Any]:
    try:
        from transformers import AutoTokenizer
    except ModuleNotFoundError as error:
        raise MissingExtra(source, f"{_FIELD}.path", path, package="transformers", extra="text") from error
    folder = Settings.from_environment().project / Path(path)
    if not folder.is_dir():
        raise ConfigError(source, f"{_FIELD}.path", path, f"there is no folder {folder}")
    try:
        load: Any = AutoTokenizer.from_pretrained
        made: Callable[..., Any] = load(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:
        raise ConfigError(source, f"{_FIELD}.path", path, f"holds no tokenizer: {reason_of(error)}") from error
    return made
