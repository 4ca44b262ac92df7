"""The module that is stored as one model: standardization, then a built-in body or one of user code."""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

from modyn_dagster.errors import ConfigError, MissingExtra, WrongShape
from modyn_dagster.imports import EXTRA_OF, call_factory
from modyn_dagster.spec.learning.models import CustomSpec, ModelSpec
from modyn_dagster.spec.learning.trainers import TrainerSpec
from modyn_dagster.spec.tasks.task import QuantilesTask, RankingTask
from modyn_dagster.spec.training import TaskKind, TrainingSpec
from modyn_dagster.training.columns.encoders import Encoders
from modyn_dagster.training.columns.input import Input
from modyn_dagster.training.memory import Allocate
from modyn_dagster.training.models import build_builtin
from modyn_dagster.training.models.fine_tuning.adapters import add_adapters
from modyn_dagster.training.models.layout import Layout
from modyn_dagster.training.models.standardization import Preparation, Standardize
from modyn_dagster.training.trainers.body import TrainerBody
from modyn_dagster.training.trainers.protocol import LearningTask

#: A model's inputs by name, each ``[n, ...]``.
Tensors = dict[str, Tensor]


class Network(nn.Module):
    """Network stored as one model: input standardization and body.

    ``prepare`` turns features into the body's inputs. Training does it beside the loop (``preparation``); ``forward`` does
    both. Inputs are tensors by name, as the layout says; columns were encoded before, and ``encode`` keeps what that takes.
    Quantiles are trained as they are, and ``finished`` puts them in order wherever they are predicted.
    """

    def __init__(self, body: nn.Module, layout: Layout, *, standardize: bool, double: bool, ascending: bool = False) -> None:
        super().__init__()
        self.body = body.double() if double else body
        self.standardize = _standardize(layout) if standardize else None
        self.encode = EncoderState(layout) if layout.encodings else None
        self._layout, self._double, self._ascending = layout, double, ascending

    def scalers(self) -> dict[str, Standardize]:
        """Standardizing layers by the name of their input."""
        if self.standardize is None:
            return {}
        if isinstance(self.standardize, Standardize):
            return {self._layout.inputs[0].name: self.standardize}
        scalers = {each.name: self.standardize[_key(each)] for each in self._layout.inputs if each.tabular}
        return cast(dict[str, Standardize], scalers)

    def preparation(self, allocate: Allocate) -> Preparation:
        """``prepare`` for arrays, with the standardisation as it is now."""
        scalings = {name: scaler.scaling() for name, scaler in self.scalers().items()}
        return Preparation(self._layout, scalings, double=self._double, allocate=allocate)

    def prepare(self, inputs: Tensors) -> Tensors:
        """Features to what the body takes: floats as float32 (float64 with precision 64-true); other arrays stay."""
        dtype, scalers = torch.float64 if self._double else torch.float32, self.scalers()
        scaled = {name: scalers[name](tensor) if name in scalers else tensor for name, tensor in inputs.items()}
        tabular = {each.name for each in self._layout.inputs if each.tabular}
        return {
            name: tensor.to(dtype) if name in tabular or tensor.is_floating_point() else tensor for name, tensor in scaled.items()
        }

    def forward(self, inputs: Tensors) -> Any:
        """Raw outputs ``[n, n_outputs]``: logits, the regression value, or its quantiles."""
        return self.finished(call_body(self.body, self.prepare(inputs), self._layout))

    def finished(self, outputs: Any) -> Any:
        """Sort the quantiles of every row, so that none cross; other outputs stay as they are.

        The pinball loss of sorted quantiles is never larger (Chernozhukov, Fernandez-Val and Galichon, Quantile and Probability
        Curves without Crossing, 2010).
        """
        return outputs.sort(dim=1).values if self._ascending else outputs


class EncoderState(nn.Module):
    """Fitted values of encoded columns, kept with the weights. Encoding itself is done on arrays, by ``Encoders``."""

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self._encodings = layout.encodings
        for name, array in Encoders.empty_state(layout.encodings).items():
            number, _, part = name.partition(".")
            if number not in dict(self.named_children()):
                self.add_module(number, nn.Module())
            self.get_submodule(number).register_buffer(part, torch.from_numpy(array))

    def keep(self, encoders: Encoders) -> None:
        """Take over fitted encoders of the same layout."""
        for name, array in encoders.state().items():
            self.get_buffer(name).copy_(torch.from_numpy(array))

    def encoders(self) -> Encoders:
        """The fitted encoders; ``ValueError`` for a state that is none."""
        return Encoders.of_state(self._encodings, {name: buffer.cpu().numpy() for name, buffer in self.named_buffers()})


def call_body(body: nn.Module, inputs: Tensors, layout: Layout) -> Any:
    """A single input by position, named ones as keyword arguments."""
    return body(**inputs) if layout.named else body(inputs[layout.inputs[0].name])


def build_network(
    spec: TrainingSpec, layout: Layout, n_outputs: int, *, source: str, seen: Layout | None = None, adapted: bool = True
) -> Network:
    """A network with fresh weights from torch's global generator. ``ConfigError`` when user code refuses to build one.

    ``seen`` are the inputs as its body gets them, where transforms make others of those of ``layout``. Without ``adapted``,
    adapters of ``pretrained.lora`` are left out.
    """
    body = build_body(spec.model, seen or layout, n_outputs, source, ranks=isinstance(spec.task, RankingTask))
    if adapted and spec.pretrained is not None and spec.pretrained.lora is not None:
        add_adapters(body, spec.pretrained.lora, source=source)
    ascending = isinstance(spec.task, QuantilesTask)
    return Network(body, layout, standardize=spec.standardize, double=spec.precision == "64-true", ascending=ascending)


def _standardize(layout: Layout) -> Standardize | nn.ModuleDict | None:
    tabular = [each for each in layout.inputs if each.tabular]
    if not layout.named:
        return Standardize(tabular[0].n_features) if tabular else None
    return nn.ModuleDict({_key(each): Standardize(each.n_features) for each in tabular})


def _key(each: Input) -> str:
    # Beside the methods of a ModuleDict, whose names its entries must not have.
    return f"{each.name}_columns"


def build_body(spec: ModelSpec, layout: Layout, n_outputs: int, source: str, *, ranks: bool = False) -> nn.Module:
    """Build the body that a spec names, with fresh weights. ``ConfigError`` and ``MissingExtra`` where that is impossible.

    ``ranks`` tells a trainer that targets are relevances.
    """
    if isinstance(spec, TrainerSpec):
        # A classifier has two outputs at least.
        kind: TaskKind = "class" if n_outputs > 1 else "target"
        names, threads = layout.value_names(), torch.get_num_threads()
        return TrainerBody(spec, LearningTask(kind, names, n_outputs, threads, source, ranks=ranks))
    if not isinstance(spec, CustomSpec):
        try:
            return build_builtin(spec, layout, n_outputs)
        except ValueError as error:
            raise ConfigError(source, "training.model", spec.name, str(error)) from error
        except ModuleNotFoundError as error:
            package = (error.name or "a library").partition(".")[0]
            extra = EXTRA_OF.get(package, "text")
            raise MissingExtra(source, "training.model.name", spec.name, package=package, extra=extra) from error
    body = call_factory(
        spec.factory, spec.config, source=source, field="training.model", n_features=layout.n_features, n_outputs=n_outputs
    )
    if not isinstance(body, nn.Module):
        rule = f"must return a torch.nn.Module, not {type(body).__name__}"
        raise ConfigError(source, "training.model.factory", spec.factory, rule)
    return body


#: ``(outputs [B, n_outputs], targets [B]) -> losses [B]``; targets are int64 classes or float32 values, or those of an objective.
SampleLoss = Callable[[Tensor, Tensor], Tensor]


def check_outputs(outputs: object, expected: tuple[int, int], *, what: str) -> Tensor:
    """The outputs if they are a tensor ``[B, n_outputs]``, else ``WrongShape``."""
    if not isinstance(outputs, Tensor):
        raise WrongShape(expected, (), what=f"{what} (a {type(outputs).__name__})")
    if outputs.shape != expected:
        raise WrongShape(expected, outputs.shape, what=what)
    return outputs
