"""Fully connected layers."""

from collections.abc import Callable, Sequence

from torch import nn

from modyn_dagster.spec.learning.models import LogisticRegressionSpec, MLPSpec
from modyn_dagster.training.models.embedded import embedded_row
from modyn_dagster.training.models.layout import Layout


def logistic_regression(_: LogisticRegressionSpec, layout: Layout, n_outputs: int) -> nn.Module:
    """Build one fully connected layer, whose loss makes it a logistic or a linear regression.

    >>> from modyn_dagster.spec.learning.models import LogisticRegressionSpec
    >>> from modyn_dagster.training.columns.input import Input
    >>> layout = Layout((Input("features", (), (4,), tabular=True, dtype="float64"),))
    >>> logistic_regression(LogisticRegressionSpec(name="logistic_regression"), layout, n_outputs=3)
    Linear(in_features=4, out_features=3, bias=True)
    """
    return _on_columns(layout, lambda width: nn.Linear(width, n_outputs))


def mlp(spec: MLPSpec, layout: Layout, n_outputs: int) -> nn.Module:
    """Build a multi-layer perceptron: the hidden widths and the dropout of the spec, then the outputs."""
    return _on_columns(layout, lambda width: dense(width, spec.hidden, n_outputs, dropout=spec.dropout))


def _on_columns(layout: Layout, build: Callable[[int], nn.Module]) -> nn.Module:
    """Build a model of a row of so many values, behind the embeddings of columns that have one."""
    row = layout.inputs[0]
    embedded = embedded_row(row)
    return build(row.n_features) if embedded is None else nn.Sequential(embedded, build(embedded.width))


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
