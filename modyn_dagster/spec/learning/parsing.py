"""Specs of parsers from bytes to arrays: functions, images, sounds, texts. An import path alone is a batch parser."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, PositiveInt, Tag, model_validator

from modyn_dagster.spec.base import ImportPath, Spec

#: Pixels of one side of an image.
Side = Annotated[int, Field(ge=1, le=65_535)]


class WorkersSpec(Spec):
    """Workers that parse. Results do not depend on them, so they are no part of a pipeline's hash."""

    kind: Literal["threads", "processes"] = Field(
        "threads", description="Processes for functions that hold Python's lock; threads for those that let go of it."
    )
    count: PositiveInt = 1


class ThreadsSpec(Spec):
    """Number of threads that decode images or sounds. Results do not depend on it, so it is no part of a pipeline's hash."""

    count: PositiveInt = 1


class ParserSpec(Spec):
    """A function of the project.

    Per batch: ``(list[bytes]) -> dict[str, ndarray]``, each array with one row per sample. Per sample:
    ``(bytes) -> dict[str, ndarray | number]``, stacked over the samples.
    """

    function: ImportPath
    per: Literal["batch", "sample"] = "batch"
    workers: WorkersSpec = WorkersSpec()


class ImagesSpec(Spec):
    """Encoded images (JPEG, PNG and whatever else Pillow reads) to one array ``features``."""

    size: tuple[Side, Side] = Field(description="Height and width of the result.")
    resize: Literal["stretch", "cover", "contain"] = Field(
        "stretch",
        description="stretch: to the size, whatever the shape; cover: fill the size and cut off what is over, in equal parts; "
        "contain: fit into the size and pad with black, in equal parts.",
    )
    channels: Literal[1, 3] = Field(3, description="3: RGB; 1: grey.")
    layout: Literal["chw", "hwc"] = "chw"
    dtype: Literal["uint8", "float32"] = Field("uint8", description="uint8: 0 to 255; float32: 0 to 1.")
    workers: ThreadsSpec = ThreadsSpec()


class ImageParserSpec(Spec):
    """Images, decoded by the platform."""

    images: ImagesSpec


class SoundsSpec(Spec):
    """WAV files of PCM to one array ``features``, ``float32[n, channels, samples]`` from -1 to 1."""

    rate: Annotated[int, Field(ge=1, le=1_000_000)] = Field(description="Samples per second of the files; others are refused.")
    samples: Annotated[int, Field(ge=1, le=1 << 26)] = Field(
        description="Samples of the result: what is over is left out, short sounds end in silence."
    )
    channels: Annotated[int, Field(ge=1, le=64)] = Field(1, description="1: the mean of all; else files have so many.")
    workers: ThreadsSpec = ThreadsSpec()


class SoundParserSpec(Spec):
    """Sounds, decoded by the platform."""

    sounds: SoundsSpec


class TextSpec(Spec):
    """Texts to numbers of their hashed n-grams, one row of ``length`` per sample."""

    columns: Annotated[list[str], Field(min_length=1)] | None = Field(
        None, description="Text columns, joined by a space; leave it out where each sample is a file of UTF-8 text."
    )
    of: Literal["words", "characters"] = "words"
    ngrams: Annotated[list[Annotated[int, Field(ge=1, le=10)]], Field(min_length=1)] = Field(
        [1], description="Sizes of n-grams, those of the first size first."
    )
    lowercase: bool = True
    buckets: Annotated[int, Field(ge=1, le=2**31)] = Field(65_536, description="How many different n-grams are told apart.")
    length: Annotated[int, Field(ge=1, le=65_536)] = Field(64, description="N-grams of a text; what is over is left out.")


class TextParserSpec(Spec):
    """Texts, encoded by the platform."""

    text: TextSpec


class TokenizerSpec(Spec):
    """Texts to numbers of their tokens, one row of ``length`` per sample, by a tokenizer of the project's."""

    path: str | None = Field(
        None,
        min_length=1,
        description="A folder that `transformers` loads a tokenizer from, relative to the project; no download.",
    )
    factory: ImportPath | None = Field(
        None,
        description="Called once with `config`; returns a callable (list[str]) -> numbers of each, as `transformers` has them.",
    )
    config: dict[str, Any] = {}
    columns: Annotated[list[str], Field(min_length=1)] | None = Field(
        None, description="Text columns, joined by a space; leave it out where each sample is a file of UTF-8 text."
    )
    length: Annotated[int, Field(ge=1, le=65_536)] = Field(64, description="Tokens of a text; what is over is left out.")
    pad: Annotated[int, Field(ge=0)] | None = Field(
        None, description="Fills short texts up; default: the tokenizer's `pad_token_id`, or 0 where it has none."
    )
    tags: str | None = Field(
        None,
        min_length=1,
        description="Column with a tag for each word of the text columns, words and tags separated by spaces; for `token_tags`.",
        exclude_if=lambda value: value is None,
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.path is None) == (self.factory is None):
            raise ValueError("give either `path` or `factory`")
        if self.tags is not None and (self.columns is None or self.tags in self.columns):
            raise ValueError("tags: needs `columns`, those of the words, beside it")
        return self


class TokenizerParserSpec(Spec):
    """Texts, encoded by a tokenizer."""

    tokenizer: TokenizerSpec


def _kind_of(content: object) -> str:
    if isinstance(content, (Mapping, Spec)):
        return next(
            (name.capitalize() for name in ("images", "sounds", "text", "tokenizer") if name in dict(content)), "Function"
        )
    return "Path"


#: ``package.module:function``, ``{function: ..., per: ..., workers: ...}``, or a mapping of one of ``images``, ``sounds``,
#: ``text`` and ``tokenizer``.
Parser = Annotated[
    Annotated[ImportPath, Tag("Path")]
    | Annotated[ParserSpec, Tag("Function")]
    | Annotated[ImageParserSpec, Tag("Images")]
    | Annotated[SoundParserSpec, Tag("Sounds")]
    | Annotated[TextParserSpec, Tag("Text")]
    | Annotated[TokenizerParserSpec, Tag("Tokenizer")],
    Discriminator(_kind_of),
]
