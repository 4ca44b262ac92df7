"""Specs of networks by name from transformers, torchvision and timm."""

from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, StringConstraints, model_validator

from modyn_dagster.spec.base import Spec

#: A name within a library, which is neither a path nor an address.
NetworkName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.]+$", max_length=100)]
#: Owner and name of a repository on a hub.
HubId = Annotated[str, StringConstraints(pattern=r"^([A-Za-z0-9][A-Za-z0-9_.-]*/)?[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=200)]
#: A commit, which names content; branches and tags move.
Revision = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
TransformersTask = Literal["sequence_classification", "image_classification", "token_classification", "causal_lm", "masked_lm"]
#: Losses of the tasks of transformers with outputs per token.
TOKEN_LOSSES: Final[dict[TransformersTask, str]] = {
    "token_classification": "token_tags",
    "causal_lm": "causal_tokens",
    "masked_lm": "masked_tokens",
}

_SHAPE: Final[Any] = Field(
    None,
    description="Channels, height and width, where an image arrives as a row of numbers (a column of fixed rows).",
    exclude_if=lambda value: value is None,
)
_CHANNELS: Final[Any] = Field(
    None, description="Per channel, of values from 0 to 1; as the weights were trained.", exclude_if=lambda value: value is None
)
#: Arguments by which networks fetch weights or configurations themselves, some of them as pickles.
_FETCHING: Final = frozenset(
    {
        "cache_dir",
        "checkpoint_path",
        "features_only",
        "num_classes",
        "pretrained",
        "pretrained_cfg",
        "pretrained_cfg_overlay",
        "progress",
        "weights",
        "weights_backbone",
    }
)
#: Entries of a configuration that name code or decide what the pipeline decides.
_NOT_CONFIGURED: Final = frozenset({"auto_map", "num_labels", "quantization_config"})


class ImageNetworkSpec(Spec):
    """Inputs of a network for images. Whole numbers become 0 to 1, and then ``(value - mean) / std`` per channel."""

    shape: tuple[PositiveInt, PositiveInt, PositiveInt] | None = _SHAPE
    mean: list[float] | None = _CHANNELS
    std: list[PositiveFloat] | None = _CHANNELS

    @model_validator(mode="after")
    def _mean_and_deviation(self) -> Self:
        if len(self.mean or ()) != len(self.std or ()) or [] in (self.mean, self.std):
            raise ValueError("give `mean` and `std` together, with one number per channel each")
        return self


class TransformersSpec(ImageNetworkSpec):
    """A network of transformers: `AutoModelFor...` for a task, by a local folder, a hub's id or a configuration alone.

    Weights are safetensors; code of a repository is never run.
    """

    name: Literal["hf"]
    task: TransformersTask = "sequence_classification"
    folder: str | None = Field(
        None,
        description="Folder below the project with config.json and weights as safetensors.",
        exclude_if=lambda value: value is None,
    )
    id: HubId | None = Field(
        None, description="Repository on the Hugging Face hub; needs `revision`.", exclude_if=lambda value: value is None
    )
    revision: Revision | None = Field(
        None, description="Commit of the repository, 40 digits.", exclude_if=lambda value: value is None
    )
    config: dict[str, Any] | None = Field(
        None,
        description="Content of config.json. Alone: fresh weights. Models record it, so that they load without folder and hub.",
        exclude_if=lambda value: value is None,
    )

    @model_validator(mode="after")
    def _has_a_source(self) -> Self:
        if self.folder is not None and self.id is not None:
            raise ValueError("give either `folder` or `id`")
        if self.folder is None and self.id is None and self.config is None:
            raise ValueError("give `folder`, `id` with `revision`, or `config`")
        if (self.id is None) != (self.revision is None):
            raise ValueError("`id` and `revision` (a commit, 40 digits) belong together: a branch or a tag may move")
        if self.config is not None and not isinstance(self.config.get("model_type"), str):
            raise ValueError("config: needs `model_type`, the name of an architecture of transformers")
        return self

    @property
    def place(self) -> str | None:
        """Folder or id of the weights; None for fresh ones."""
        return self.folder if self.id is None else self.id

    def configured(self, config: dict[str, Any]) -> Self:
        """Return the spec with the content of config.json, without what the pipeline decides."""
        return self.model_copy(update={"config": {key: config[key] for key in config.keys() - _NOT_CONFIGURED}})


class NamedNetworkSpec(ImageNetworkSpec):
    """A classifier that a library builds by name."""

    config: dict[str, Any] = Field({}, description="Further arguments of the network.", exclude_if=lambda value: not value)

    @model_validator(mode="after")
    def _fetches_nothing(self) -> Self:
        _refuse_fetching(self.config)
        return self


class TorchvisionSpec(NamedNetworkSpec):
    """A classifier of torchvision by name. Its weights are fresh, or those of `pretrained.weights`."""

    name: Literal["torchvision"]
    network: NetworkName = Field(description="Name in `torchvision.models`, such as resnet50 or vit_b_16.")


class TimmSpec(NamedNetworkSpec):
    """A classifier of timm by name. Its weights are fresh, or those of `pretrained.weights`."""

    name: Literal["timm"]
    network: NetworkName = Field(description="Name for `timm.create_model`, such as resnet50 or convnext_tiny.")


LibraryModelSpec = TransformersSpec | TorchvisionSpec | TimmSpec


def _refuse_fetching(config: dict[str, Any]) -> None:
    if refused := sorted(config.keys() & _FETCHING):
        raise ValueError(f"config: {refused[0]} is decided by the pipeline; weights come from `pretrained.weights`")
