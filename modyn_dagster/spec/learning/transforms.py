"""Specs of transforms of a model's inputs and of labels, between reading and training."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import Discriminator, Field, PositiveInt, Tag, model_validator

from modyn_dagster.spec.base import ImportPath, Spec


class TransformSpec(Spec):
    """A callable on tensors: ``function``, called as it is, or what ``factory`` returns.

    Per sample it gets and returns one sample's input ``[...]``, per batch ``[B, ...]``. Where it takes a keyword ``rng`` it gets
    a ``numpy.random.Generator``.
    """

    function: ImportPath | None = Field(
        None, description="Called with the tensor, `config` as keywords, and `rng` if it takes it."
    )
    factory: ImportPath | None = Field(None, description="Called once with `config`; what it returns is called with the tensor.")
    config: dict[str, Any] = {}
    per: Literal["sample", "batch"] = "sample"
    when: Literal["always", "train", "evaluate"] = Field(
        "always", description="train: only on what is learnt from; evaluate: only on what is predicted, measured or watched."
    )
    input: str | None = Field(None, description="Which input of the model, where it has several.")
    draws: bool = Field(
        True,
        description="It may draw from the generators of torch, NumPy or Python, so it runs in the thread that trains, and they "
        "are seeded for it. With false, or with a keyword `rng`, it runs in the threads that read ahead.",
    )

    @property
    def path(self) -> str:
        """Import path of the code."""
        return str(self.function or self.factory)

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.function is None) == (self.factory is None):
            raise ValueError("give either `function` or `factory`")
        return self


#: A class by its name, or by its number where classes have none.
ClassName = Annotated[str, Field(min_length=1)] | Annotated[int, Field(ge=0)]
Classes = Annotated[list[ClassName], Field(min_length=1)]


class GroupedLabels(Spec):
    """Classes become fewer."""

    groups: Annotated[list[Classes], Field(min_length=2)] = Field(description="Class 0 is each of the first group, and so on.")

    @model_validator(mode="after")
    def _groups_are_apart(self) -> Self:
        members = [name for group in self.groups for name in group]
        if repeated := [name for name in members if members.count(name) > 1]:
            raise ValueError(f"{repeated[0]!r} must be in one group, once")
        return self


class PositiveLabels(Spec):
    """Class 1 is any of these, class 0 is every other."""

    positive: Classes


class ThresholdLabels(Spec):
    """Class 1 is a target above a threshold, class 0 one at it or below."""

    above: float


class OwnLabels(Spec):
    """Code of the project: ``int64[n]`` classes, or ``float64[n]`` targets, to an array of ``n``."""

    function: ImportPath
    config: dict[str, Any] = {}
    n_classes: PositiveInt | None = Field(None, description="It returns classes from 0 to below this; without it targets.")


def _kind_of(content: object) -> str:
    named = dict(content) if isinstance(content, Mapping | Spec) else {}
    return next((name.capitalize() for name in ("groups", "positive", "above") if name in named), "Function")


#: Kind of a task.
Kind = TypeVar("Kind", bound=str)

#: ``{groups: ...}``, ``{positive: ...}``, ``{above: ...}`` or ``{function: ...}``.
LabelTransform = Annotated[
    Annotated[GroupedLabels, Tag("Groups")]
    | Annotated[PositiveLabels, Tag("Positive")]
    | Annotated[ThresholdLabels, Tag("Above")]
    | Annotated[OwnLabels, Tag("Function")],
    Discriminator(_kind_of),
]


def kind_after(spec: LabelTransform | None, kind: Kind) -> Kind | Literal["class", "target"]:
    """Kind of label after a transform."""
    if spec is None:
        return kind
    return "target" if isinstance(spec, OwnLabels) and spec.n_classes is None else "class"
