"""Networks of transformers by configuration, with weights that ``from_pretrained`` takes over."""

from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn

from modyn_dagster.spec.learning.libraries import TransformersSpec, TransformersTask
from modyn_dagster.training.models.fine_tuning.report import LoadReport, Shape, compare_shapes, shapes_of
from modyn_dagster.training.models.layout import Layout
from modyn_dagster.training.models.libraries.pixels import Pixels

#: Factory of transformers for each task.
_FACTORIES: Final[Mapping[TransformersTask, str]] = {
    "sequence_classification": "AutoModelForSequenceClassification",
    "image_classification": "AutoModelForImageClassification",
    "token_classification": "AutoModelForTokenClassification",
    "causal_lm": "AutoModelForCausalLM",
    "masked_lm": "AutoModelForMaskedLM",
}
#: Tasks whose outputs are tokens of the vocabulary.
_OF_VOCABULARY: Final = ("causal_lm", "masked_lm")
#: Entries of a configuration that a training has settings of its own for, or that only describe the file.
_OWN: Final = frozenset({"model_type", "dtype", "torch_dtype", "architectures", "id2label", "label2id", "transformers_version"})


class TransformersNetwork(nn.Module):
    """Network of transformers: outputs ``float[n, n_outputs]`` of tokens ``int64[n, length]`` or of images.

    Tasks with outputs per token return ``float[n, length, n_outputs]``.

    Tokens of the configuration's ``pad_token_id`` are masked, but for the first position.

    Args:
        spec: spec with a configuration.
        n_outputs: number of classes, of tags, or of tokens of the vocabulary; 1 for a target.

    Raises ``ValueError`` for a configuration that transformers refuses, or of another vocabulary.
    """

    def __init__(self, spec: TransformersSpec, n_outputs: int) -> None:
        super().__init__()
        import transformers

        content = spec.config or {}
        entries = {key: value for key, value in content.items() if key not in _OWN}
        if spec.task in _OF_VOCABULARY and entries.setdefault("vocab_size", n_outputs) != n_outputs:
            raise ValueError(f"the configuration's vocab_size is {entries['vocab_size']}, training.loss.vocabulary {n_outputs}")
        try:
            self._config: Any = transformers.AutoConfig.for_model(content["model_type"], **entries, num_labels=n_outputs)
            factory = getattr(transformers, _FACTORIES[spec.task])
            self.model: Any = factory.from_config(self._config, trust_remote_code=False)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"transformers refused the configuration: {type(error).__name__}: {error}") from error
        self._pixels = Pixels(spec) if spec.task == "image_classification" else None
        # Keys and values of earlier tokens, for texts that are written token by token.
        self._remembers = spec.task == "causal_lm"
        self._padding: int | None = getattr(self._config, "pad_token_id", None)

    @property
    def head_names(self) -> list[str]:
        """Names of the parameters that the task adds to the base network."""
        base = f"model.{self.model.base_model_prefix}."
        return [
            name
            for name, _ in self.named_parameters()
            if not name.startswith(base) and ".base_layer." not in name and ".lora_" not in name
        ]

    def names_in_checkpoint(self, shapes: Mapping[str, Shape]) -> dict[str, Shape]:
        """Shapes of a checkpoint by the names here, whether it holds the base network alone or the whole."""
        base = self.model.base_model_prefix
        is_whole = any(name.startswith(f"{base}.") for name in shapes)
        return {f"model.{name}" if is_whole else f"model.{base}.{name}": shape for name, shape in shapes.items()}

    def load_pretrained(self, weights: Mapping[str, Tensor]) -> LoadReport:
        """Take over weights of a checkpoint, of the base network alone or with a head; the rest begins fresh."""
        own = shapes_of(self.state_dict())
        named = self.names_in_checkpoint(shapes_of(weights))
        # transformers calls weights of another network corrupt, or takes none of them.
        if not named.keys() & own.keys():
            return compare_shapes(named, own)
        network = type(self.model)
        loaded, info = network.from_pretrained(
            None, config=self._config, state_dict=dict(weights), ignore_mismatched_sizes=True, output_loading_info=True
        )
        self.model = loaded
        missing = tuple(f"model.{name}" for name in sorted(info["missing_keys"]))
        # Names, or names with shapes, by the release of transformers.
        keys = sorted(key if isinstance(key, str) else key[0] for key in info["mismatched_keys"])
        other = tuple((name, named[name], own[name]) for name in (f"model.{key}" for key in keys))
        n_loaded = len(own) - len(missing) - len(other)
        return LoadReport(n_loaded, missing, tuple(sorted(info["unexpected_keys"])), other)

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute outputs."""
        if self._pixels is not None:
            given: dict[str, Any] = {"pixel_values": self._pixels(inputs)}
        else:
            mask = torch.ones_like(inputs) if self._padding is None else (inputs != self._padding).long()
            # Attention over no position at all is not a number.
            mask[:, 0] = 1
            given = {"input_ids": inputs, "attention_mask": mask}
            if self._remembers:
                given["use_cache"] = False
        outputs: Tensor = self.model(**given).logits
        return outputs


def transformers_network(spec: TransformersSpec, _layout: Layout, n_outputs: int) -> nn.Module:
    """Build a network with fresh weights from the spec's configuration."""
    return TransformersNetwork(spec, n_outputs)
