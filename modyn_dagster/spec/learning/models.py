"""Specs of models: built-in ones and trainers by ``name``, user code by ``factory``, and the inputs that each accepts."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Discriminator, Field, PositiveInt, Tag, model_validator

from modyn_dagster.spec.base import ImportPath, Spec
from modyn_dagster.spec.learning.libraries import ImageNetworkSpec, LibraryModelSpec, TransformersSpec
from modyn_dagster.spec.learning.parsing import ImageParserSpec, Parser, SoundParserSpec, TextParserSpec
from modyn_dagster.spec.learning.trainers import TrainerSpec

Share = Annotated[float, Field(ge=0, lt=1)]
#: Channels, height and width of an image.
Shape = tuple[PositiveInt, PositiveInt, PositiveInt]

_SHAPE: Final = Field(
    None,
    description="Channels, height and width, where an image arrives as a row of numbers (a column of fixed rows). "
    "Images of a parser have a shape of their own.",
)


class LogisticRegressionSpec(Spec):
    """A linear layer on standardised numeric columns."""

    name: Literal["logistic_regression"]


class MLPSpec(Spec):
    """Fully connected layers with ReLU on standardised numeric columns."""

    name: Literal["mlp"]
    hidden: list[PositiveInt] = [64, 64]
    dropout: Share = 0.0


class CNNSpec(Spec):
    """Three convolutions with batch norm and pooling, then a hidden layer: for images of about 28 to 32 pixels."""

    name: Literal["cnn"]
    shape: Shape | None = _SHAPE
    channels: tuple[PositiveInt, PositiveInt, PositiveInt] = (16, 32, 64)
    hidden: PositiveInt = 64
    dropout: Share = 0.0


class ResNetSpec(Spec):
    """Residual networks (He et al. 2015) with fresh weights."""

    name: Literal["resnet18", "resnet50", "resnet152"]
    shape: Shape | None = _SHAPE
    stem: Literal["imagenet", "small"] = Field(
        "imagenet",
        description="imagenet: 7x7 with stride 2 and pooling; small: 3x3 without either, for some 32 pixels.",
    )


class DLRMSpec(Spec):
    """Embeddings of categories, a network of numbers, their dot products, a network of all (Naumov et al. 2019).

    Its features are two groups, ``numeric`` and ``categorical`` (whole numbers from 0).
    """

    name: Literal["dlrm"]
    embedding: PositiveInt = Field(16, description="Width of the embeddings.")
    rows: PositiveInt = Field(10_000, description="Rows of each category's table; larger numbers share rows.")
    bottom: list[PositiveInt] = [64]
    top: list[PositiveInt] = [64]


class HashedTextSpec(Spec):
    """The mean embedding of a text's hashed n-grams and fully connected layers; takes what the parser `text` makes."""

    name: Literal["hashed_text"]
    buckets: PositiveInt = Field(65_536, description="Of the parser: how many different n-grams are told apart.")
    embedding: PositiveInt = 64
    hidden: list[PositiveInt] = [64]
    dropout: Share = 0.0


class DistilBertSpec(Spec):
    """A DistilBERT (Sanh et al. 2019) with fresh weights, built from these numbers alone; takes what the parser `text` makes."""

    name: Literal["distilbert"]
    buckets: PositiveInt = Field(30_000, description="Of the parser: how many different words are told apart.")
    length: PositiveInt = Field(512, description="Of the parser, or more.")
    layers: PositiveInt = 6
    heads: PositiveInt = 12
    width: PositiveInt = 768
    hidden: PositiveInt = 3072
    dropout: Share = 0.1

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} must be a multiple of heads {self.heads}")
        return self


class CustomSpec(Spec):
    """User code: ``factory`` is called with what the place it stands in hands over, plus ``config`` as keywords.

    A model gets ``n_features`` and ``n_outputs``, an optimizer the parameters, a loss nothing (docs/training.md).
    """

    factory: ImportPath
    config: dict[str, Any] = {}


BoxedModelSpec = LogisticRegressionSpec | MLPSpec | CNNSpec | ResNetSpec | DLRMSpec | HashedTextSpec | DistilBertSpec
NamedModelSpec = BoxedModelSpec | LibraryModelSpec


def _kind_of(content: object) -> str:
    has_name = isinstance(content, dict) and "name" in content
    own = isinstance(content, CustomSpec) or (isinstance(content, dict) and "factory" in content and not has_name)
    return "Own" if own else "Named"


ModelSpec = Annotated[
    Annotated[Annotated[NamedModelSpec | TrainerSpec, Field(discriminator="name")], Tag("Named")]
    | Annotated[CustomSpec, Tag("Own")],
    Discriminator(_kind_of),
]


def takes_rows(model: ModelSpec) -> bool:
    """Test that a model takes a row of numbers per sample, which may be standardised. Other models take arrays unchanged."""
    if isinstance(model, CNNSpec | ResNetSpec | ImageNetworkSpec):
        return model.shape is not None
    return isinstance(model, LogisticRegressionSpec | MLPSpec | TrainerSpec)


def input_mismatch(
    model: ModelSpec, groups: Mapping[str, str] | None, parser: Parser | None, *, embedded: str | None = None
) -> str | None:
    """Reason for which features and parser do not fit a model; None if they fit, as far as specs tell.

    Args:
        model: spec of the model.
        groups: dtypes of groups of features by name.
        parser: spec of the parser.
        embedded: a column with the encoding `embedding`, if there is one.
    """
    if embedded is not None and not isinstance(model, LogisticRegressionSpec | MLPSpec):
        rule = "only mlp and logistic_regression make embeddings; a model with tables of its own takes `kind: number`"
        return f"encode: {embedded!r} has an embedding: {rule}, in a group of integers"
    return None if isinstance(model, CustomSpec) else _input_problem(model, groups, parser)


def _input_problem(model: NamedModelSpec | TrainerSpec, groups: Mapping[str, str] | None, parser: Parser | None) -> str | None:
    if isinstance(model, DLRMSpec):
        fits = groups is not None and set(groups) == {"numeric", "categorical"} and groups["categorical"].startswith("int")
        return None if fits else "dlrm takes two groups of features, `numeric` and `categorical`, the latter int32 or int64"
    if groups is not None:
        return f"features in groups need dlrm or a model of your own (`factory`); {model.name} takes one input"
    if isinstance(parser, SoundParserSpec) and not isinstance(model, LogisticRegressionSpec | MLPSpec):
        return f"sounds need mlp, logistic_regression or a model of your own (`factory`), not {model.name}"
    if _takes_texts(model):
        return _text_problem(model, parser)
    if isinstance(model, CNNSpec | ResNetSpec | ImageNetworkSpec) and model.shape is None and parser is None:
        return f"{model.name} takes images: give it a parser, or `shape` where an image is a row of numbers"
    return None


def _takes_texts(model: NamedModelSpec | TrainerSpec) -> bool:
    if isinstance(model, TransformersSpec):
        return model.task != "image_classification"
    return isinstance(model, HashedTextSpec | DistilBertSpec)


def _text_problem(model: NamedModelSpec | TrainerSpec, parser: Parser | None) -> str | None:
    if not isinstance(model, HashedTextSpec | DistilBertSpec):
        takes_no_tokens = parser is None or isinstance(parser, TextParserSpec | ImageParserSpec)
        return f"{model.name} takes tokens for this task: give it the parser `tokenizer`" if takes_no_tokens else None
    if parser is None:
        return f"{model.name} takes texts: give it the parser `text`"
    if isinstance(parser, TextParserSpec) and parser.text.buckets > model.buckets:
        return f"the parser tells {parser.text.buckets} n-grams apart, {model.name} only {model.buckets} (`buckets`)"
    return None
