"""Whether a model in the box can take what a spec hands it."""

from collections.abc import Mapping

from modyn_dagster.spec.models import CNNSpec, CustomSpec, DistilBertSpec, DLRMSpec, HashedTextSpec, ModelSpec, ResNetSpec
from modyn_dagster.spec.parsing import Parser, TextParserSpec


def inputs_problem(model: ModelSpec, groups: Mapping[str, str] | None, parser: Parser | None) -> str | None:
    """What does not fit; None when all does, as far as a spec tells. ``groups`` are dtypes of groups of features by name."""
    if isinstance(model, CustomSpec):
        return None
    if isinstance(model, DLRMSpec):
        fits = groups is not None and set(groups) == {"numeric", "categorical"} and groups["categorical"].startswith("int")
        return None if fits else "dlrm takes two groups of features, `numeric` and `categorical`, the latter int32 or int64"
    if groups is not None:
        return f"features in groups need dlrm or a model of your own (`factory`); {model.name} takes one input"
    if isinstance(model, HashedTextSpec | DistilBertSpec):
        return _text_problem(model, parser)
    if isinstance(model, CNNSpec | ResNetSpec) and model.shape is None and parser is None:
        return f"{model.name} takes images: give it a parser, or `shape` where an image is a row of numbers"
    return None


def _text_problem(model: HashedTextSpec | DistilBertSpec, parser: Parser | None) -> str | None:
    if parser is None:
        return f"{model.name} takes texts: give it the parser `text`"
    if isinstance(parser, TextParserSpec) and parser.text.buckets > model.buckets:
        return f"the parser tells {parser.text.buckets} n-grams apart, {model.name} only {model.buckets} (`buckets`)"
    return None
