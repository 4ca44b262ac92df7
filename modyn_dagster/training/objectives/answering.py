"""Answers of a model to the question of an objective."""

from typing import Final

import torch
from torch import Tensor, nn

from modyn_dagster.training.models.layout import Layout
from modyn_dagster.training.models.network import Tensors, call_body
from modyn_dagster.training.objectives.objective import Objective, OutputForm

#: Largest number of outputs of one forward pass of a measurement. It decides the sizes of passes, and so bits.
_MOST_OUTPUTS: Final = 1 << 26


def answer(form: OutputForm, body: nn.Module, inputs: Tensors, layout: Layout, n_samples: int, *, what: str) -> Tensor:
    """Call a model on its question, ``float[n, form.width]``; views of a sample are samples of their own to the model.

    Raises ``WrongShape`` for outputs of another form.
    """
    if form.views > 1:
        inputs = {name: tensor.flatten(0, 1) for name, tensor in inputs.items()}
    return form.checked(call_body(body, inputs, layout), n_samples, what=what)


def measured(objective: Objective, body: nn.Module, inputs: Tensors, targets: Tensor, layout: Layout, *, what: str) -> Tensor:
    """Compute the measures of samples, ``float[n, n_measures]``, in passes of so many samples that their outputs fit memory."""
    n = max(1, _MOST_OUTPUTS // objective.form.width)
    parts = []
    for start in range(0, len(targets), n):
        rows = slice(start, start + n)
        part = {name: tensor[rows] for name, tensor in inputs.items()}
        outputs = answer(objective.form, body, part, layout, len(targets[rows]), what=what)
        parts.append(objective.measures(outputs, targets[rows]))
    return torch.cat(parts)
