"""Columns of samples, as read or parsed from their bytes."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from modyn_dagster.data.samples import Samples
from modyn_dagster.errors import BadSample, ConfigError, TrainingError, WrongShape
from modyn_dagster.imports import import_callable
from modyn_dagster.keys import KeyArray
from modyn_dagster.spec.learning.parsing import (
    ImageParserSpec,
    Parser,
    ParserSpec,
    SoundParserSpec,
    TextParserSpec,
    TokenizerParserSpec,
)
from modyn_dagster.training.parsing.function import (
    Blobs,
    Columns,
    Function,
    NotArrays,
    ParseFailed,
    ThreadedParts,
    require_joinable,
)
from modyn_dagster.training.parsing.images import Images
from modyn_dagster.training.parsing.processes import Processes
from modyn_dagster.training.parsing.sounds import Sounds
from modyn_dagster.training.parsing.tagged_texts import TaggedTexts
from modyn_dagster.training.parsing.texts import TextParser, Texts, TokenizerParser


class Place(Protocol):
    """Place of a sample's bytes; ``fastpath.Place`` is one."""

    @property
    def dataset(self) -> str:
        """Name of the dataset."""

    @property
    def path(self) -> str:
        """Path of the file."""

    @property
    def offset(self) -> int:
        """Offset of the sample's first byte."""


#: Finds the place of a key.
Where = Callable[[int], Place]


class Parsing:
    """Parser of a spec, thread-safe. Without one, columns pass unchanged. ``close`` ends its threads and processes.

    Args:
        parser: parser of the training spec.
        source: name of the pipeline, for errors.
        where: finds the place of a sample, for errors.
        tags: names of the tags of tokens, where texts have some.
    """

    def __init__(self, parser: Parser | None, source: str, where: Where | None = None, *, tags: Sequence[str] = ()) -> None:
        self.parser, self.source, self._where = parser, source, where
        self.name = _name_of(parser)
        self._parse = _parse_of(parser, source, tags)
        #: True if the input is the samples' columns, not their bytes.
        self.of_columns = self._parse is None or (isinstance(self._parse, TextParser) and self._parse.columns is not None)

    def __call__(self, samples: Samples) -> Columns:
        """Parse samples into arrays of length n; ``ConfigError`` if the dataset has no bytes to parse."""
        if self._parse is None:
            return samples.columns
        if self.of_columns and isinstance(self._parse, TextParser):
            return self._parsed(samples.keys, partial(self._of_texts, self._parse, samples.columns))
        if samples.blobs is None:
            raise ConfigError(self.source, "training.parser", self.name, "these samples come as columns, not as bytes")
        return self.of_blobs(samples.keys, samples.blobs)

    def of_blobs(self, keys: KeyArray, blobs: Blobs) -> Columns:
        """Parse the bytes of samples into arrays.

        Raises:
            BadSample: the parser fails on one of them.
            ConfigError: it returns no arrays.
            WrongShape: an array has another length.
        """
        if self._parse is None:
            raise ConfigError(
                self.source, "training.parser", None, "these samples come as bytes; a parser must make arrays of them"
            )
        return self._parsed(keys, partial(self._parse, blobs))

    def _parsed(self, keys: KeyArray, parse: Callable[[], Columns]) -> Columns:
        try:
            parsed = parse()
        except NotArrays as error:
            raise ConfigError(self.source, "training.parser", self.name, str(error)) from error
        except ParseFailed as error:
            raise self._failure(keys, error) from error
        return {name: self._checked(name, array, len(keys)) for name, array in parsed.items()}

    def _of_texts(self, texts: TextParser, columns: Columns) -> Columns:
        try:
            return texts.of_columns(columns)
        except KeyError as error:
            rule = f"is not a column; known: {', '.join(columns) or 'none'}"
            field = "columns" if error.args[0] in (texts.columns or ()) else "tags"
            raise ConfigError(self.source, f"training.parser.{self.name}.{field}", error.args[0], rule) from error

    def close(self) -> None:
        """End threads and processes."""
        if self._parse is not None:
            self._parse.close()

    def _failure(self, keys: KeyArray, error: ParseFailed) -> TrainingError:
        what = f"{self.source}: training.parser: {self.name}"
        if error.position is None:
            reason = f"{error.reason} (with {len(keys)} samples from key {keys[0]} on together, with none of them alone)"
            return TrainingError(f"{what} failed: {reason}")
        key = int(keys[error.position])
        if self._where is None:
            return BadSample(what, key, error.reason)
        place = self._where(key)
        return BadSample(what, key, error.reason, dataset=place.dataset, path=place.path, offset=place.offset)

    def _checked(self, name: str, array: npt.NDArray[Any], n: int) -> npt.NDArray[Any]:
        if array.ndim == 0 or len(array) != n:
            raise WrongShape([n, "..."], array.shape, what=f"{self.source}: {self.name}, array {name!r},")
        return array


class _Parse(Protocol):
    """Blobs to columns; raises ``ParseFailed`` and ``NotArrays``."""

    def __call__(self, blobs: Blobs) -> Columns: ...
    def close(self) -> None: ...


class _Functions:
    """Parser function of the project, in threads or processes."""

    def __init__(self, spec: ParserSpec, function: Callable[..., Any]) -> None:
        self._pieces = ThreadedParts(spec.workers.count)
        self._processes = Processes(spec.function, spec.per, spec.workers.count) if spec.workers.kind == "processes" else None
        self._call = self._processes if self._processes is not None else Function(function, spec.per)

    def __call__(self, blobs: Blobs) -> Columns:
        parts = self._pieces(len(blobs), lambda start, stop: self._call([blobs[i] for i in range(start, stop)]))
        return parts[0] if len(parts) == 1 else _joined(parts)

    def close(self) -> None:
        self._pieces.close()
        if self._processes is not None:
            self._processes.close()


def _joined(parts: Sequence[Columns]) -> Columns:
    for part in parts[1:]:
        if list(part) != list(parts[0]):
            raise NotArrays(f"must return the same arrays for all samples, not {', '.join(part)} beside {', '.join(parts[0])}")
    if any(array.ndim == 0 for part in parts for array in part.values()):
        raise NotArrays("must return arrays with one row per sample, not single numbers")
    start = 0
    for part in parts:
        for name, array in part.items():
            if array.shape[1:] != parts[0][name].shape[1:]:
                reason = f"{name!r} has shape {array.shape[1:]}, that of the samples before it has {parts[0][name].shape[1:]}"
                raise ParseFailed(start, reason)
            require_joinable(name, array, parts[0][name], start)
        start += len(next(iter(part.values()), ()))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _parse_of(parser: Parser | None, source: str, tags: Sequence[str]) -> _Parse | None:
    if parser is None:
        return None
    if isinstance(parser, ImageParserSpec):
        return Images(parser.images)
    if isinstance(parser, SoundParserSpec):
        return Sounds(parser.sounds)
    if isinstance(parser, TextParserSpec):
        return Texts(parser.text)
    if isinstance(parser, TokenizerParserSpec):
        texts = parser.tokenizer
        return TokenizerParser(texts, source) if texts.tags is None else TaggedTexts(texts, tags, source)
    spec = ParserSpec(function=parser) if isinstance(parser, str) else parser
    return _Functions(spec, import_callable(spec.function, source=source, field=field_of(parser)))


def field_of(parser: Parser) -> str:
    """Field of the spec that names the parser's function."""
    return "training.parser" if isinstance(parser, str) else "training.parser.function"


def _name_of(parser: Parser | None) -> str | None:
    if isinstance(parser, ImageParserSpec | SoundParserSpec):
        return "images" if isinstance(parser, ImageParserSpec) else "sounds"
    if isinstance(parser, TextParserSpec | TokenizerParserSpec):
        return "text" if isinstance(parser, TextParserSpec) else "tokenizer"
    return parser.function if isinstance(parser, ParserSpec) else parser
