"""Specs of trainers: models that a library fits at once, without the training loop."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PositiveInt, ValidationInfo

from modyn_dagster.spec.base import ImportPath, Spec, check_import_path


def is_nested(value: object) -> bool:
    """Tell whether a value among parameters stands for an estimator: ``{estimator: package.module:Class, parameters: {...}}``."""
    if not isinstance(value, Mapping) or not value.keys() <= {"estimator", "parameters"}:
        return False
    return isinstance(value.get("estimator"), str) and isinstance(value.get("parameters", {}), Mapping)


def nested_estimators(value: object, place: str = "") -> Iterator[tuple[str, str]]:
    """List estimators among parameters, at any depth: ``(dotted place, import path)``.

    >>> list(nested_estimators({"steps": [["scale", {"estimator": "sklearn.preprocessing:StandardScaler"}]]}))
    [('steps.0.1.estimator', 'sklearn.preprocessing:StandardScaler')]
    """
    if is_nested(value):
        assert isinstance(value, Mapping)  # noqa: S101 - is_nested has just looked; narrows the type
        yield f"{place}.estimator".lstrip("."), value["estimator"]
        yield from nested_estimators(value.get("parameters", {}), f"{place}.parameters".lstrip("."))
    elif isinstance(value, Mapping | list):
        parts = value.items() if isinstance(value, Mapping) else enumerate(value)
        for name, part in parts:
            yield from nested_estimators(part, f"{place}.{name}".lstrip("."))


def _check_nested(parameters: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
    for place, path in [found for name, value in parameters.items() for found in nested_estimators(value, str(name))]:
        try:
            check_import_path(path, info)
        except ValueError as error:
            raise ValueError(f"{place}: {path!r} {error}") from None
    return parameters


Parameters = Annotated[
    dict[str, Any],
    AfterValidator(_check_nested),
    Field(description="Keyword arguments. An estimator among them is `{estimator: package.module:Class, parameters: {...}}`."),
]


class SklearnSpec(Spec):
    """A classifier or regressor with the interface of scikit-learn, stored without pickle by skops."""

    name: Literal["sklearn"]
    estimator: ImportPath = Field(description="Class, such as `sklearn.linear_model:LogisticRegression`.")
    parameters: Parameters = {}


class LightGBMSpec(Spec):
    """Boosted trees of LightGBM, stored as its text file."""

    name: Literal["lightgbm"]
    parameters: dict[str, Any] = Field({}, description="Of the library, such as `num_leaves: 31`.")
    rounds: PositiveInt = Field(100, description="Trees, or trees per class, that a training adds.")


class XGBoostSpec(Spec):
    """Boosted trees of XGBoost, stored as its UBJSON file."""

    name: Literal["xgboost"]
    parameters: dict[str, Any] = Field({}, description="Of the library, such as `max_depth: 6`.")
    rounds: PositiveInt = Field(100, description="Trees, or trees per class, that a training adds.")


class RiverSpec(Spec):
    """A classifier or regressor of river, which learns the samples of a training set one by one in their order."""

    name: Literal["river"]
    estimator: ImportPath = Field(description="Class, such as `river.tree:HoeffdingTreeClassifier`.")
    parameters: Parameters = {}


class OwnTrainerSpec(Spec):
    """User code: ``factory(task, **config)`` returns a ``Trainer`` (docs/own_models.md)."""

    name: Literal["trainer"]
    factory: ImportPath
    config: dict[str, Any] = {}


TrainerSpec = SklearnSpec | LightGBMSpec | XGBoostSpec | RiverSpec | OwnTrainerSpec
