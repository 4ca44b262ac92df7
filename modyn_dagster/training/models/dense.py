"""Fully connected layers."""

from collections.abc import Sequence

from torch import nn

from modyn_dagster.spec.learning.models import LogisticRegressionSpec, MLPSpec
from modyn_dagster.training.models.layout import Layout


def logistic_regression(_: LogisticRegressionSpec, layout: Layout, n_outputs: int) -> nn.Module:
    """Build one fully connected layer, whose loss makes it a logistic or a linear regression.

    >>> from modyn_dagster.spec.learning.models import LogisticRegressionSpec
    >>> from modyn_dagster.training.models.layout import Input
    >>> layout = Layout((Input("features", (), (4,), tabular=True, dtype="float64"),))
    >>> logistic_regression(LogisticRegressionSpec(name="logistic_regression"), layout, n_outputs=3)
    Linear(in_features=4, out_features=3, bias=True)
    """
    return nn.Linear(layout.inputs[0].n_features, n_outputs)


def mlp(spec: MLPSpec, layout: Layout, n_outputs: int) -> nn.Module:
    """Build a multi-layer perceptron: the hidden widths and the dropout of the spec, then the outputs."""
    return dense(layout.inputs[0].n_features, spec.hidden, n_outputs, dropout=spec.dropout)


def dense(n_inputs: int, hidden: Sequence[int], n_outputs: int, *, dropout: float = 0.0) -> nn.Sequential:
    """Build fully connected layers with ReLU and dropout after each hidden one.

    Args:
        n_inputs: values of a sample.
        hidden: widths of the hidden layers.
        n_outputs: values of a sample's output.
        dropout: probability that a hidden value is dropped.

    >>> [tuple(weights.shape) for weights in dense(4, [8], 2).parameters()]
    [(8, 4), (8,), (2, 8), (2,)]
    """
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [nn.Linear(n_inputs, width), nn.ReLU()]
        layers += [nn.Dropout(dropout)] if dropout else []
        n_inputs = width
    return nn.Sequential(*layers, nn.Linear(n_inputs, n_outputs))
