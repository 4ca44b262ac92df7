"""Loader of MLflow models: ``MLmodel`` files name this module as their ``loader_module``."""

from typing import TYPE_CHECKING, Any

from modyn_dagster.serving.model_folder import load_folder
from modyn_dagster.serving.model_predictor import ModelPredictor, Output

if TYPE_CHECKING:
    import pandas as pd


class PyfuncModel:
    """Model as MLflow calls it; inputs have passed the signature.

    Args:
        predictor: predictor of the model.
    """

    def __init__(self, predictor: ModelPredictor) -> None:
        self.predictor = predictor

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> "Any | pd.DataFrame":
        """Predict as ``ModelPredictor.predict`` does; ``params={"output": …}`` chooses the form.

        Probabilities of named classes are a DataFrame with a column per class; so are quantiles, several targets and labels.
        """
        output: Output = (params or {}).get("output", "prediction")
        values = self.predictor.predict(model_input, output)
        record = self.predictor.record
        names = record.names if output != "outputs" else ()
        if output == "probabilities" and record.classes:
            names = record.classes
        if not names:
            return values
        import pandas as pd

        return pd.DataFrame(values, columns=list(names))


def _load_pyfunc(data_path: str) -> PyfuncModel:
    """Load a model for MLflow, from the folder ``model`` of its files."""
    return PyfuncModel(load_folder(data_path))
