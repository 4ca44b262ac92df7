"""Trainer of XGBoost's boosted trees."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.errors import ConfigError
from modyn_dagster.spec.learning.trainers import XGBoostSpec
from modyn_dagster.training.trainers.adapters.boosting import BoostedTrees
from modyn_dagster.training.trainers.protocol import Inputs, LearningTask, TrainingSamples, Weights

#: Metrics of rankings of which larger values are better.
_GAINS: Final = ("ndcg", "map", "pre", "auc")


class XGBoostTrainer(BoostedTrees):
    """Adds ``rounds`` trees (per class, beyond two) to a previous model or to none; the model is XGBoost's UBJSON file.

    A ranking takes no weights of samples: XGBoost weighs whole groups.
    """

    rankings = ("rank:ndcg", "rank:map", "rank:pairwise")
    objectives = ("binary:logistic", "multi:softprob")

    def __init__(self, spec: XGBoostSpec, task: LearningTask) -> None:
        super().__init__(spec, task)
        self.takes_weights = not task.ranks

    def fit(self, samples: TrainingSamples, weights: Weights, previous: Any | None, seed: int) -> Any:
        """Boost on samples, from a previous model if there is one."""
        import xgboost

        task, rounds = self._task, self._spec.rounds

        class Reporting(xgboost.callback.TrainingCallback):  # type: ignore[misc]  # the library may be absent, and has no types then
            def after_iteration(self, _model: Any, _epoch: int, evals_log: Any) -> bool:
                # None where the parameters ask for no metric.
                for name, losses in (next(iter(metrics.items())) for metrics in evals_log.values() if metrics):
                    is_gain = task.ranks and name.startswith(_GAINS)
                    task.report(len(losses), rounds, 1 - float(losses[-1]) if is_gain else float(losses[-1]))
                return False

        data = self._matrix(samples.inputs, label=samples.truth, weight=weights, qid=samples.groups)
        return xgboost.train(
            self._parameters(seed),
            data,
            num_boost_round=rounds,
            xgb_model=previous,
            evals=[(data, "training")],
            callbacks=[Reporting()],
            verbose_eval=False,
        )

    def predict(self, model: Any, inputs: Inputs) -> npt.NDArray[Any]:
        """Probabilities, targets or scores."""
        found = np.asarray(model.predict(self._matrix(inputs)), dtype=np.float64)
        return np.column_stack([1 - found, found]) if self._task.kind == "class" and found.ndim == 1 else found

    def to_bytes(self, model: Any) -> bytes:
        """UBJSON of the model."""
        return bytes(model.save_raw("ubj"))

    def from_bytes(self, content: bytes) -> Any:
        """Model of UBJSON; ``ConfigError`` if it is none."""
        import xgboost

        try:
            return xgboost.Booster({"nthread": self._task.threads}, model_file=bytearray(content))
        except (xgboost.core.XGBoostError, ValueError) as error:
            first = (str(error).splitlines() or [""])[0]
            raise ConfigError(self._task.source, "training.model", "model file", f"is no model of XGBoost: {first}") from error

    def _matrix(self, inputs: Inputs, **known: Any) -> Any:
        import xgboost

        return xgboost.DMatrix(inputs, nthread=self._task.threads, **known)

    def _parameters(self, seed: int) -> dict[str, Any]:
        n, is_class = self._task.n_outputs, self._task.kind == "class"
        targets = "rank:ndcg" if self._task.ranks else "reg:squarederror"
        objective = ("multi:softprob" if n > 2 else "binary:logistic") if is_class else targets
        fixed = {"nthread": self._task.threads, "seed": seed % 2**31, "device": "cpu"}
        parameters = {"objective": objective, "verbosity": 0, **self._spec.parameters, **fixed}
        return parameters | ({"num_class": n} if str(parameters["objective"]).startswith("multi:") else {})
