"""Checks of a pretrained model before anything runs: its files, the names of its parameters, and the layers of adapters."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import torch

from modyn_dagster.errors import ConfigError, MissingExtra
from modyn_dagster.imports import EXTRA_OF, is_installed
from modyn_dagster.reproducibility.determinism import restored_generators
from modyn_dagster.spec.dataset import DatasetSpec, LabelSpec
from modyn_dagster.spec.learning.libraries import ImageNetworkSpec, TransformersSpec
from modyn_dagster.spec.learning.models import CNNSpec, CustomSpec, DistilBertSpec, HashedTextSpec, ResNetSpec, takes_rows
from modyn_dagster.spec.learning.parsing import ImageParserSpec
from modyn_dagster.spec.learning.transforms import kind_after
from modyn_dagster.spec.pipeline import PipelineSpec
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training.columns.input import ARRAY, Input
from modyn_dagster.training.models.fine_tuning.adapters import target_layers
from modyn_dagster.training.models.fine_tuning.freezing import frozen_names
from modyn_dagster.training.models.fine_tuning.report import Shape, by_names_of_body, compare_shapes, shapes_of
from modyn_dagster.training.models.layout import Layout
from modyn_dagster.training.models.libraries.transformers import TransformersNetwork
from modyn_dagster.training.models.network import build_body
from modyn_dagster.training.pretrained.weights_file import (
    field_and_place,
    is_here,
    pretrained_files,
    pretrained_shapes,
    with_config,
)

#: Distribution of each library of networks.
_PACKAGES: Final = {"hf": "transformers", "torchvision": "torchvision", "timm": "timm"}


def require_fine_tunable(pipeline: PipelineSpec, dataset: DatasetSpec, project: Path) -> None:
    """Check a pipeline with a pretrained model or a network of a library; does nothing for other models.

    A network is built where the spec tells the kind of its inputs, and its names are compared with patterns and files. Files of
    a hub are looked at where they are in the local cache; nothing is fetched.

    Raises:
        ConfigError: a file is missing, a pickle or of another architecture; a pattern fits nothing, or everything is frozen.
        MissingExtra: a library of the model is not installed.
    """
    training, source = pipeline.training, f"pipeline {pipeline.name}"
    if not training.is_pretrained:
        return
    _require_packages(training, source)
    if isinstance(training.model, TransformersSpec) and not is_here(training.model, source):
        return
    training = with_config(training, project, source=source, download=False)
    _compare(training, project, _n_outputs(training, dataset.label), source)


def _n_outputs(training: TrainingSpec, label: LabelSpec | None) -> int:
    if label is None:
        # Outputs of a loss without labels: made up, as sizes are not compared.
        return 2
    if kind_after(training.label_transform, label.kind) == "target":
        return 1
    return max(2, len(label.classes or ()), label.n_classes or 0)


def _require_packages(training: TrainingSpec, source: str) -> None:
    name = getattr(training.model, "name", "")
    if name in _PACKAGES and not is_installed(package := _PACKAGES[name]):
        raise MissingExtra(source, "training.model.name", name, package=package, extra=EXTRA_OF[package])
    if training.pretrained is not None and training.pretrained.lora is not None and not is_installed("peft"):
        raise MissingExtra(source, "training.pretrained.lora", "(on)", package="peft", extra=EXTRA_OF["peft"])


def _compare(training: TrainingSpec, project: Path, n_outputs: int, source: str) -> None:
    """Build the body, and compare its names with the spec's patterns and files."""
    files = pretrained_files(training, project, source=source, download=False)
    shapes = pretrained_shapes(training, files, source=source)
    layout = _layout(training)
    if layout is None:
        return
    # Names and shapes need no memory for weights; user code may need real tensors.
    device = torch.device("cpu" if isinstance(training.model, CustomSpec) else "meta")
    with restored_generators(), device:
        try:
            body = build_body(training.model, layout, n_outputs, source)
        except ConfigError:
            if isinstance(training.model, CustomSpec):
                # Its inputs are made up.
                return
            raise
    names = [name for name, _ in body.named_parameters()]
    tuned = training.pretrained
    if tuned is not None and tuned.freeze is not None:
        frozen_names(tuned.freeze, names, source=source)
    if tuned is not None and tuned.lora is not None:
        target_layers(body, tuned.lora, source=source)
    if files:
        known = shapes_of(body.state_dict())
        own = body.names_in_checkpoint(shapes) if isinstance(body, TransformersNetwork) else by_names_of_body(shapes, known)
        field, place = field_and_place(training)
        compare_shapes(_at_scale(own, known), known).require_some(shapes, list(known), field=field, path=place, source=source)


def _at_scale(file: Mapping[str, Shape], model: Mapping[str, Shape]) -> dict[str, Shape]:
    """Shapes of a file as those of the model, where they have as many dimensions: sizes of inputs and outputs are made up."""
    return {
        name: model[name] if len(model.get(name, ())) == len(shape) and name in model else shape for name, shape in file.items()
    }


def _layout(training: TrainingSpec) -> Layout | None:
    """Layout of the inputs, as far as the spec tells; sizes it does not tell are made up. None for several inputs."""
    model, parser = training.model, training.parser
    if isinstance(training.features, dict):
        return None
    if isinstance(model, CNNSpec | ResNetSpec | ImageNetworkSpec) and model.shape is not None:
        shape: Shape = (math.prod(model.shape),)
    elif isinstance(parser, ImageParserSpec):
        images = parser.images
        shape = (images.channels, *images.size) if images.layout == "chw" else (*images.size, images.channels)
    elif isinstance(model, DistilBertSpec | HashedTextSpec | TransformersSpec) and not _takes_images(model):
        shape = (1,)
    elif isinstance(model, CNNSpec | ResNetSpec | ImageNetworkSpec):
        # A parser of the user's own makes the images.
        shape = (3, 224, 224)
    else:
        shape = (len(training.features) if isinstance(training.features, list) else 1,)
    return Layout((Input(ARRAY, (), shape, takes_rows(model), None),))


def _takes_images(model: DistilBertSpec | HashedTextSpec | TransformersSpec) -> bool:
    return isinstance(model, TransformersSpec) and model.task == "image_classification"
