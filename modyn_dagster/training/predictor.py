"""Prediction: raw outputs of a trained model for samples."""

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from modyn_dagster.data.samples import Samples
from modyn_dagster.errors import ConfigError
from modyn_dagster.keys import KeyArray
from modyn_dagster.reproducibility.determinism import fixed_algorithms
from modyn_dagster.reproducibility.devices import current_device, resolve_device
from modyn_dagster.spec.tasks.task import TaskSpec, truth_width
from modyn_dagster.training.columns.encoders import NO_ENCODERS, Encoders
from modyn_dagster.training.data import COLUMNS, MEASURES, OUTPUTS
from modyn_dagster.training.inputs.features import Features
from modyn_dagster.training.memory import Arrays, aligned, empty_aligned
from modyn_dagster.training.models.activations import flattened, record_activations, to_numpy
from modyn_dagster.training.models.network import Network, call_body, check_outputs
from modyn_dagster.training.module import empty_network, seen_layout, spec_of_architecture
from modyn_dagster.training.objectives.answering import answer, measured
from modyn_dagster.training.objectives.build import build_objective
from modyn_dagster.training.objectives.objective import Objective
from modyn_dagster.training.objectives.posing import Posing
from modyn_dagster.training.parsing.parser import Parsing, Where
from modyn_dagster.training.transforms.chain import Transforms
from modyn_dagster.training.transforms.labels import Relabeling
from modyn_dagster.training.user_code import user_code

_NOTHING: Final = nullcontext()


@dataclass(frozen=True, slots=True)
class ComputeSettings:
    """Settings of a prediction that can change bits."""

    device: str
    threads: int
    deterministic: bool


class Predictor:
    """Predictor of raw outputs in evaluation mode, without autocast, after the transforms of evaluation.

    The bits of a row depend on the block of samples it is given in (their number and order), on the threads and on the
    hardware; callers that compare bits use fixed blocks. ``close`` ends what its parser runs in.
    """

    def __init__(
        self,
        network: Network,
        features: Features,
        n_outputs: int,
        *,
        settings: ComputeSettings,
        transforms: Transforms,
        relabeling: Relabeling,
        task: TaskSpec | None = None,
        objective: Objective | None = None,
    ) -> None:
        self.n_outputs = n_outputs if objective is None else objective.answer.width
        self.n_measures = n_outputs if objective is None else objective.n_measures
        self.kind, self.task = relabeling.kind, task
        self._objective, self._posing = objective, None if objective is None else Posing.evaluation(objective, transforms)
        self._network, self._features, self._settings = network.to(settings.device).eval(), features, settings
        self._transformed, self._relabeling = transforms.evaluation(), relabeling
        self._what = f"{features.parsing.source}: training.model: the model"
        # NumPy standardises a row in a fraction of the time that torch takes, to the same bits.
        self._prepared = network.preparation(empty_aligned) if settings.device == "cpu" else None

    @property
    def n_targets(self) -> int:
        """Values of a sample's truth, where they are several; 0 for one class or target per sample."""
        return truth_width(self.task)

    def judged(self, samples: Samples) -> Samples:
        """Replace labels by those the model learnt, which its outputs are compared with."""
        return self._relabeling.judged(samples)

    def __call__(self, samples: Samples) -> npt.NDArray[np.float32]:
        """Predict logits, a value or its quantiles, ``float32[n, n_outputs]``; ``WrongShape`` for outputs of another shape.

        Without a label: the reconstruction, the embedding, or the logits of all tokens, of the vocabulary or the tags.
        """
        if len(samples) == 0:
            return np.empty((0, self.n_outputs), dtype=np.float32)
        with self._fixed(), self._on_device(), torch.inference_mode():
            return to_numpy(self._outputs(self._inputs(samples), len(samples)))

    def measures(self, samples: Samples) -> npt.NDArray[np.float32]:
        """Compute what metrics are made of, ``float32[n, n_measures]``: outputs, or measures of the objective without labels."""
        if self._objective is None or len(samples) == 0:
            return self(samples) if self._objective is None else np.empty((0, self.n_measures), dtype=np.float32)
        with self._fixed(), self._on_device(), torch.inference_mode():
            return to_numpy(self._measured(self._prepared_inputs(self._features(samples)), samples.keys))

    def of_arrays(self, arrays: Arrays, keys: KeyArray) -> npt.NDArray[np.float32]:
        """Predict from the arrays that ``Features`` makes of at least one sample; the same bits as for the samples.

        Takes the arrays over: their memory may be changed.
        """
        with self._fixed(), self._on_device(), torch.inference_mode():
            return to_numpy(self._outputs(self._inputs_of(arrays, keys), len(keys)))

    def tapped(self, samples: Samples, taps: Collection[str]) -> dict[str, npt.NDArray[np.float32]]:
        """Compute activations of at least one sample in one pass, ``float32[n, values]`` each.

        Layers are ``OUTPUTS``, ``COLUMNS``, ``EMBEDDING``, ``MEASURES`` and names of modules. ``ConfigError`` for a module that
        the model does not have, or does not use.
        """
        if MEASURES in taps:
            return self.tapped(samples, set(taps) - {MEASURES}) | {MEASURES: self.measures(samples)}
        source = self._features.parsing.source
        with (
            self._fixed(),
            self._on_device(),
            torch.inference_mode(),
            record_activations(self._network.body, taps, source=source) as recorded,
        ):
            inputs = self._inputs(samples)
            activations = {COLUMNS: flattened(inputs.values())} if COLUMNS in taps else {}
            if set(taps) - {COLUMNS}:
                activations[OUTPUTS] = to_numpy(self._outputs(inputs, len(samples)))
        return {tap: activations[tap] if tap in activations else recorded(tap, len(samples)) for tap in taps}

    def _fixed(self) -> fixed_algorithms:
        return fixed_algorithms(self._settings.threads, deterministic=self._settings.deterministic)

    def _on_device(self) -> AbstractContextManager[None]:
        return _NOTHING if self._settings.device == "cpu" else current_device(torch.device(self._settings.device))

    def _inputs(self, samples: Samples) -> dict[str, Tensor]:
        """Compute the inputs of the model's body."""
        return self._inputs_of(self._features(samples), samples.keys)

    def _inputs_of(self, arrays: Arrays, keys: KeyArray) -> dict[str, Tensor]:
        prepared = self._prepared_inputs(arrays)
        if self._objective is not None:
            prepared = {name: self._objective.shown(tensor) for name, tensor in prepared.items()}
        if not self._transformed:
            return prepared
        host = {name: tensor.cpu() for name, tensor in prepared.items()}
        return {name: tensor.to(self._settings.device) for name, tensor in self._transformed(host, keys).items()}

    def _prepared_inputs(self, arrays: Arrays) -> dict[str, Tensor]:
        """Standardise inputs, before the transforms."""
        if self._prepared is not None:
            return {name: torch.from_numpy(array) for name, array in self._prepared(arrays).items()}
        inputs = {name: torch.from_numpy(aligned(array)).to(self._settings.device) for name, array in arrays.items()}
        return self._network.prepare(inputs)

    def _measured(self, prepared: dict[str, Tensor], keys: KeyArray) -> Tensor:
        assert self._objective is not None and self._posing is not None  # noqa: S101 - for the type checker
        posed, targets = self._posing({name: tensor.cpu() for name, tensor in prepared.items()}, keys)
        inputs = {name: tensor.to(self._settings.device) for name, tensor in posed.items()}
        targets = targets.to(self._settings.device)
        with user_code(self._what):
            return measured(self._objective, self._network.body, inputs, targets, self._features.layout, what=self._what)

    def _outputs(self, inputs: dict[str, Tensor], n_samples: int) -> Tensor:
        with user_code(self._what):
            if self._objective is not None:
                form, body = self._objective.answer, self._network.body
                return answer(form, body, inputs, self._features.layout, n_samples, what=self._what)
            returned = call_body(self._network.body, inputs, self._features.layout)
            outputs = check_outputs(returned, (n_samples, self.n_outputs), what=self._what)
        return cast(Tensor, self._network.finished(outputs))

    def close(self) -> None:
        """End the parser's threads and processes."""
        self._features.parsing.close()


def build_predictor(
    architecture: Mapping[str, Any],
    state_dict: Mapping[str, Tensor],
    *,
    device: str = "cpu",
    threads: int,
    source: str,
    where: Where | None = None,
) -> Predictor:
    """Build the predictor of a model that ``train`` recorded as ``architecture`` and ``state_dict``.

    ``where`` finds the place of a sample (``SampleReader.store.where``) for errors about samples that cannot be parsed.
    ``ConfigError`` when the weights do not fit the architecture, ``ImportPathError`` when its code is missing.
    """
    spec, layout = spec_of_architecture(architecture)
    network = empty_network(architecture, threads=threads, source=source)
    try:
        network.load_state_dict(state_dict)
    except RuntimeError as error:
        raise ConfigError(source, "training.model", architecture["model"], f"the stored weights do not fit: {error}") from error
    features = Features(layout, Parsing(spec.parser, source, where, tags=spec.tags), _encoders(network, source))
    settings = ComputeSettings(resolve_device(device, source=source, field="training.device"), threads, spec.deterministic)
    transforms = Transforms(spec, source, where)
    relabeling = Relabeling(spec.label_transform, architecture.get("label", architecture["task"]), source, spec.task)
    parts: dict[str, Any] = {"settings": settings, "transforms": transforms, "relabeling": relabeling, "task": spec.task}
    objective = build_objective(spec, seen_layout(architecture, layout), source=source)
    return Predictor(network, features, int(architecture["n_outputs"]), **parts, objective=objective)


def _encoders(network: Network, source: str) -> Encoders:
    if network.encode is None:
        return NO_ENCODERS
    try:
        return network.encode.encoders()
    except ValueError as error:
        raise ConfigError(source, "training.encode", "(on)", f"the stored vocabulary is damaged: {error}") from error
