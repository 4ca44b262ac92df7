"""Specs of losses that need no label of a sample: reconstruction, contrastive learning, language models, tags of tokens."""

from typing import Annotated, Final, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveFloat, StringConstraints, model_validator

from modyn_dagster.spec.base import Spec
from modyn_dagster.spec.learning.features import require_no_repeats

#: Kinds of task of a dataset without a label.
UnlabelledKind = Literal["reconstruction", "contrastive", "tokens", "tags"]

#: Target in place of a token that is not predicted.
IGNORED: Final = -100

#: Name of a tag. Columns of tags separate them by spaces.
TagName = Annotated[str, StringConstraints(pattern=r"^\S+$", max_length=100)]
Share = Annotated[float, Field(ge=0, le=1)]


class ReconstructionSpec(Spec):
    """Error of a sample's outputs against its inputs, as the model sees them: standardised and transformed."""

    name: Literal["reconstruction"]
    error: Literal["mse", "l1"] = Field("mse", description="Mean squared or mean absolute error over the values of a sample.")


class ContrastiveSpec(Spec):
    """NT-Xent (Chen et al. 2020): two views of a sample are to be closer to each other than to all others of the batch."""

    name: Literal["nt_xent"]
    dimension: Annotated[int, Field(ge=2)] = Field(128, description="Outputs of the model: values of an embedding.")
    temperature: PositiveFloat = Field(0.5, description="Divides the cosine similarities.")


class TokensSpec(Spec):
    """A loss over rows of token numbers, such as the parser `tokenizer` makes."""

    vocabulary: Annotated[int, Field(ge=2)] = Field(description="Tokens are 0 to below this; the outputs of the model per token.")
    padding: NonNegativeInt = Field(0, description="The token that fills short texts up; it is never predicted.")

    @model_validator(mode="after")
    def _padding_is_a_token(self) -> Self:
        if self.padding >= self.vocabulary:
            raise ValueError(f"padding {self.padding} must be a token, below vocabulary {self.vocabulary}")
        return self


class CausalTokensSpec(TokensSpec):
    """Cross-entropy of each token, predicted from those before it."""

    name: Literal["causal_tokens"]


class MaskedTokensSpec(TokensSpec):
    """Cross-entropy of hidden tokens, predicted from the others (Devlin et al. 2018)."""

    name: Literal["masked_tokens"]
    mask: NonNegativeInt = Field(description="The token that stands for a hidden one.")
    share: Annotated[float, Field(gt=0, lt=1)] = Field(0.15, description="Of the tokens of a text that are predicted.")
    random: Share = Field(0.1, description="Of the predicted tokens that are replaced by another token instead of the mask.")
    kept: Share = Field(0.1, description="Of the predicted tokens that stay as they are.")

    @model_validator(mode="after")
    def _shares_fit(self) -> Self:
        if self.mask >= self.vocabulary or self.mask == self.padding:
            raise ValueError(f"mask {self.mask} must be a token below vocabulary {self.vocabulary}, and not the padding")
        if self.random + self.kept > 1:
            raise ValueError(f"random + kept must be 1 at most, not {self.random + self.kept:g}")
        return self


class TokenTagsSpec(Spec):
    """Cross-entropy of the tag of each token: sequence labelling. Tags are part of a sample, beside its tokens."""

    name: Literal["token_tags"]
    tags: list[TagName] = Field(
        min_length=2,
        description="All tags, in the order of a token's outputs. Where all are `O`, `B-...` or `I-...`, they name spans.",
        examples=[["O", "B-PLACE", "I-PLACE"]],
    )

    @model_validator(mode="after")
    def _tags_differ(self) -> Self:
        require_no_repeats(list(self.tags), "tags")
        return self

    @property
    def name_spans(self) -> bool:
        """True if the tags are those of the scheme IOB2, and so name spans of tokens.

        >>> TokenTagsSpec(name="token_tags", tags=["O", "B-PLACE", "I-PLACE"]).name_spans
        True
        """
        return any(tag != "O" for tag in self.tags) and all(tag == "O" or tag[:2] in ("B-", "I-") for tag in self.tags)


#: Losses that need no label of a sample, by ``name``.
ObjectiveSpec = ReconstructionSpec | ContrastiveSpec | CausalTokensSpec | MaskedTokensSpec | TokenTagsSpec

#: Names of these losses, with the kind of task that each makes.
OBJECTIVES: Final[dict[str, UnlabelledKind]] = {
    "reconstruction": "reconstruction",
    "nt_xent": "contrastive",
    "causal_tokens": "tokens",
    "masked_tokens": "tokens",
    "token_tags": "tags",
}


def kind_of_objective(loss: object) -> UnlabelledKind | None:
    """Kind of task of a loss that needs no label; None for any other loss.

    >>> kind_of_objective(ReconstructionSpec(name="reconstruction")), kind_of_objective("mse")
    ('reconstruction', None)
    """
    return OBJECTIVES[loss.name] if isinstance(loss, ObjectiveSpec) else None
