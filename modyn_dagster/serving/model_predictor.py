"""Predictor of one loaded model: from requests to classes, probabilities or raw outputs."""

import weakref
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Literal, get_args

import numpy as np
import numpy.typing as npt
from torch import Tensor

from modyn_dagster.errors import WrongInput
from modyn_dagster.imports import add_code_folder
from modyn_dagster.serving.inputs import Inputs, positions
from modyn_dagster.settings import Settings
from modyn_dagster.training.predictor import build_predictor
from modyn_dagster.training.predictor_record import PredictorRecord

#: ``prediction``: the class or the value; ``probabilities``: of each class; ``outputs``: logits or the value, as evaluated.
Output = Literal["prediction", "probabilities", "outputs"]
OUTPUTS: Final[tuple[Output, ...]] = get_args(Output)


class ModelPredictor:
    """Predictions of one model, for any number of threads, which wait for each other.

    Raw outputs have the bits that evaluation computes for the same block of samples, with the same threads and hardware.

    Args:
        record: everything beside the weights.
        state_dict: weights.
        device: device of predictions; default: that of the training.
        threads: number of threads of torch; default: that of the evaluation.

    Raises:
        ConfigError: user code of the model is missing in this process, the weights do not fit, or the device is missing.
    """

    def __init__(
        self,
        record: PredictorRecord,
        state_dict: Mapping[str, Tensor],
        *,
        device: str | None = None,
        threads: int | None = None,
    ) -> None:
        add_code_folder(Settings.from_environment().project)
        self.record = replace(record, device=device or record.device, threads=threads or record.threads)
        self.inputs = Inputs(record)
        self._classes = np.asarray(record.classes, dtype=object) if record.classes else None
        self._predict = build_predictor(
            record.architecture, state_dict, device=self.record.device, threads=self.record.threads, source=record.name
        )
        # Threads that still predict keep the object: the parser ends with the last of them.
        weakref.finalize(self, self._predict.close)

    def predict(self, data: Any, output: Output = "prediction") -> npt.NDArray[Any]:
        """Predict for a DataFrame, a mapping of columns, an array ``[n, values]``, or texts or bytes.

        Returns:
            ``prediction``: ``object[n]`` names or ``int64[n]`` numbers of classes, ``float32[n]`` values of a regression,
            ``float32[n, quantiles]`` of quantiles, ``float32[n, targets]``, ``int64[n, labels]`` of 0 and 1;
            ``probabilities``: ``float64[n, classes]``, or of each label; ``outputs``: ``float32[n, outputs]``.

        Raises:
            WrongInput: the data or ``output`` do not fit the model.
            BadSample: the parser fails on a sample.
        """
        has_probabilities = self.record.kind == "class" or self.record.are_flags
        if output not in OUTPUTS or (output == "probabilities" and not has_probabilities):
            allowed = OUTPUTS if has_probabilities else ("prediction", "outputs")
            raise WrongInput(self.record.name, "output", f"one of {', '.join(allowed)}", repr(output))
        outputs = self._outputs(data)
        if output == "outputs":
            return outputs
        if self.record.are_flags:
            return sigmoid(outputs) if output == "probabilities" else (outputs > 0).astype(np.int64)
        if output == "probabilities":
            return softmax(outputs)
        if self.record.kind == "target":
            return outputs if self.record.names else outputs[:, 0]
        numbers = outputs.argmax(axis=1)
        return np.asarray(numbers if self._classes is None else self._classes[numbers])

    def _outputs(self, data: Any) -> npt.NDArray[np.float32]:
        arrays = self.inputs.matrix(data)
        if arrays is None:
            return self._predict(self.inputs(data))
        return self._predict.of_arrays(arrays, positions(len(data)))


def sigmoid(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Probability of each label, ``float64[n, labels]``, in a form that no logit makes overflow."""
    return np.asarray(np.exp(-np.logaddexp(0.0, -logits.astype(np.float64))))


def softmax(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Probabilities ``float64[n, classes]`` of logits, computed in float64 as the metrics of evaluation do."""
    wide = logits.astype(np.float64)
    exponentials = np.exp(wide - wide.max(axis=1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=1, keepdims=True))
