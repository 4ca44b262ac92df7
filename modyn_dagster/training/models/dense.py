"""Fully connected layers."""

from collections.abc import Sequence

from torch import nn

from modyn_dagster.spec.learning.models import LogisticRegressionSpec, MLPSpec
from modyn_dagster.training.models.layout import Layout


def logistic_regression(_: LogisticRegressionSpec, layout: Layout, n_outputs: int) -> nn.Module:
    """One layer."""
    return nn.Linear(layout.inputs[0].n_features, n_outputs)


def mlp(spec: MLPSpec, layout: Layout, n_outputs: int) -> nn.Module:
    """Hidden layers and one of outputs."""
    return dense(layout.inputs[0].n_features, spec.hidden, n_outputs, dropout=spec.dropout)


def dense(n_inputs: int, hidden: Sequence[int], n_outputs: int, *, dropout: float = 0.0) -> nn.Sequential:
    """``[n, n_inputs]`` to ``[n, n_outputs]``, with ReLU and dropout after each hidden layer."""
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [nn.Linear(n_inputs, width), nn.ReLU()]
        layers += [nn.Dropout(dropout)] if dropout else []
        n_inputs = width
    return nn.Sequential(*layers, nn.Linear(n_inputs, n_outputs))
