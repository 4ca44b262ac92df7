"""Built-in models by name: plain modules with fresh weights from torch's global generator."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from torch import nn

from modyn_dagster.spec.learning.models import NamedModelSpec
from modyn_dagster.training.models.dense import logistic_regression, mlp
from modyn_dagster.training.models.dlrm import dlrm
from modyn_dagster.training.models.images import cnn, resnet
from modyn_dagster.training.models.layout import Layout
from modyn_dagster.training.models.libraries.pixels import timm_network, torchvision_network
from modyn_dagster.training.models.libraries.transformers import transformers_network
from modyn_dagster.training.models.text import distilbert, hashed_text

__all__ = ["build_builtin"]

_MODELS: Final[Mapping[str, Callable[[Any, Layout, int], nn.Module]]] = {
    "logistic_regression": logistic_regression,
    "mlp": mlp,
    "cnn": cnn,
    "resnet18": resnet,
    "resnet50": resnet,
    "resnet152": resnet,
    "dlrm": dlrm,
    "hashed_text": hashed_text,
    "distilbert": distilbert,
    "hf": transformers_network,
    "torchvision": torchvision_network,
    "timm": timm_network,
}


def build_builtin(spec: NamedModelSpec, layout: Layout, n_outputs: int) -> nn.Module:
    """Build the model that a spec names for inputs of a layout; ``ValueError`` for shapes that it cannot take."""
    return _MODELS[spec.name](spec, layout, n_outputs)
