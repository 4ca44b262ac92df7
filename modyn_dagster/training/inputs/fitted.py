"""Features with encoders that are fitted to a training set, in a pass of its own before all others."""

from dataclasses import replace

from modyn_dagster.data.samples import Samples
from modyn_dagster.keys import KeyArray
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training.columns.encoders import NO_ENCODERS, Encoders
from modyn_dagster.training.columns.fitting import Fitting
from modyn_dagster.training.columns.rows import encodable
from modyn_dagster.training.columns.selection import rules_of
from modyn_dagster.training.data import PreviousModel
from modyn_dagster.training.inputs.features import Features
from modyn_dagster.training.inputs.reading import EpochOrder, Reading
from modyn_dagster.training.memory import Arrays
from modyn_dagster.training.models.layout import Layout
from modyn_dagster.training.parsing.function import Columns
from modyn_dagster.training.parsing.parser import Parsing


class _Unencoded(Features):
    """Columns as they are."""

    def __init__(self, layout: Layout, parsing: Parsing, names: list[str]) -> None:
        super().__init__(layout, parsing)
        self._names = names

    def of_columns(self, columns: Columns, keys: KeyArray) -> Arrays:
        return {name: encodable(columns, name, self.parsing.source) for name in self._names}


def fitted_features(
    spec: TrainingSpec, reading: Reading, example: Samples, chunk: int, previous: PreviousModel | None
) -> Features:
    """Fit the encoders of a training set.

    Args:
        spec: of the training.
        reading: of the training set, with features whose encoders are not fitted.
        example: first samples of it.
        chunk: number of samples to read at once.
        previous: model that training starts from, whose vocabularies are kept.

    Raises:
        BadSample: a value is no text.
        ConfigError: a column has more values than its bound.
    """
    layout, parsing, source = reading.features.layout, reading.features.parsing, reading.source
    encodings = layout.encodings
    rules = rules_of(spec, [each.column for each in encodings], parsing(example), source)
    fitting = Fitting(encodings, rules, source, _encoders_of(previous))
    if fitting.columns:
        raw = replace(reading, features=_Unencoded(layout, parsing, fitting.columns))
        for loaded in raw(EpochOrder(chunk), lambda loaded: loaded):
            fitting.update(loaded.inputs, loaded.keys)
    encoders = fitting.encoders()
    fitted = layout.fitted({name: each.encoding for name, each in encoders.by_column.items()})
    return Features(fitted, parsing, encoders)


def _encoders_of(previous: PreviousModel | None) -> Encoders:
    """Encoders of an earlier model; none where it has none."""
    if previous is None:
        return NO_ENCODERS
    state = {
        name.removeprefix("encode."): tensor.numpy() for name, tensor in previous.state_dict.items() if name.startswith("encode.")
    }
    return Encoders.of_state(Layout.from_json(previous.architecture["features"]).encodings, state)
