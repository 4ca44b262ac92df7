"""Trainer of LightGBM's boosted trees."""

from typing import Any

import numpy as np
import numpy.typing as npt

from modyn_dagster.errors import ConfigError
from modyn_dagster.training.trainers.adapters.boosting import BoostedTrees
from modyn_dagster.training.trainers.protocol import Inputs, TrainingSamples, Weights


class LightGBMTrainer(BoostedTrees):
    """Adds ``rounds`` trees (per class, beyond two) to a previous model or to none; the model is LightGBM's text file."""

    rankings = ("lambdarank", "rank_xendcg")
    objectives = ("binary", "multiclass", "softmax", "multiclassova", "multiclass_ova", "ova", "ovr")

    def fit(self, samples: TrainingSamples, weights: Weights, previous: Any | None, seed: int) -> Any:
        """Boost on samples, from a previous model if there is one."""
        import lightgbm

        def report(environment: Any) -> None:
            # None where the parameters ask for no metric.
            for _, _, value, is_gain, *_ in environment.evaluation_result_list[:1]:
                loss = 1 - float(value) if is_gain and self._task.ranks else float(value)
                self._task.report(environment.iteration - environment.begin_iteration + 1, self._spec.rounds, loss)

        group = None if samples.groups is None else np.bincount(samples.groups)
        data = lightgbm.Dataset(samples.inputs, samples.truth, weight=weights, group=group, free_raw_data=False)
        options: dict[str, Any] = {
            "valid_sets": [data],
            "valid_names": ["training"],
            "callbacks": [report],
            "init_model": previous,
        }
        options |= {"num_boost_round": self._spec.rounds, "keep_training_booster": True}
        return lightgbm.train(self._parameters(seed), data, **options)

    def predict(self, model: Any, inputs: Inputs) -> npt.NDArray[Any]:
        """Probabilities, targets or scores."""
        found = np.asarray(model.predict(inputs, num_threads=self._task.threads), dtype=np.float64)
        return np.column_stack([1 - found, found]) if self._task.kind == "class" and found.ndim == 1 else found

    def to_bytes(self, model: Any) -> bytes:
        """Text of the model."""
        return str(model.model_to_string(num_iteration=-1)).encode()

    def from_bytes(self, content: bytes) -> Any:
        """Model of a text; ``ConfigError`` if it is none."""
        import lightgbm

        try:
            return lightgbm.Booster(model_str=content.decode())
        except (lightgbm.basic.LightGBMError, UnicodeDecodeError) as error:
            raise ConfigError(self._task.source, "training.model", "model file", f"is no model of LightGBM: {error}") from error

    def _parameters(self, seed: int) -> dict[str, Any]:
        n, is_class = self._task.n_outputs, self._task.kind == "class"
        objective = ("multiclass" if n > 2 else "binary") if is_class else "lambdarank" if self._task.ranks else "regression"
        fixed = {"num_threads": self._task.threads, "seed": seed % 2**31, "deterministic": True}
        # With the choice left to the library, it measures which is faster, and bits may follow.
        layout = {} if "force_row_wise" in self._spec.parameters else {"force_col_wise": True}
        parameters = {"objective": objective, "verbosity": -1, **layout, **self._spec.parameters, **fixed}
        return parameters | ({"num_class": n} if is_class and parameters["objective"] != "binary" else {})
