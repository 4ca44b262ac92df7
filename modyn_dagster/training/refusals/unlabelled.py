"""Refusals of training settings that need a label, for datasets without one."""

from collections.abc import Iterator
from typing import Final

from modyn_dagster.errors import ConfigError
from modyn_dagster.spec.learning.downsampling import PolicySpec
from modyn_dagster.spec.learning.features import EmbeddingSpec
from modyn_dagster.spec.learning.libraries import TOKEN_LOSSES, TransformersSpec
from modyn_dagster.spec.learning.models import CustomSpec
from modyn_dagster.spec.learning.parsing import ParserSpec, TextParserSpec, TokenizerParserSpec
from modyn_dagster.spec.learning.trainers import TrainerSpec
from modyn_dagster.spec.tasks.objectives import (
    OBJECTIVES,
    ContrastiveSpec,
    ObjectiveSpec,
    ReconstructionSpec,
    TokensSpec,
    TokenTagsSpec,
)
from modyn_dagster.spec.training import TrainingSpec

#: Downsampling policies that read neither losses nor labels.
_BLIND: Final = ("uniform", "rs2", "rs2_without_replacement")


def check_without_label(spec: TrainingSpec, *, source: str) -> None:
    """Check that a training reads no label; ``ConfigError`` names the first field that would, or that does not fit the loss."""
    for field, value, rule in _problems(spec):
        raise ConfigError(source, f"training.{field}", value, rule)


#: Field of the training spec, its value, and the rule that it breaks.
Problem = tuple[str, object, str]


def _problems(spec: TrainingSpec) -> Iterator[Problem]:
    loss = spec.loss
    if isinstance(spec.model, TrainerSpec):
        yield "model.name", spec.model.name, "learns from labels, and the dataset has none; use a network"
    if not isinstance(loss, ObjectiveSpec):
        shown = loss.factory if isinstance(loss, CustomSpec) else loss
        yield "loss", shown, f"compares outputs with a label, and the dataset has none: use {{name: {' | '.join(OBJECTIVES)}}}"
        return
    if spec.label_transform is not None:
        yield "label_transform", "(on)", "changes labels, and the dataset has none; leave it out"
    if spec.task is not None:
        yield "task.kind", spec.task.kind, "says more about a label, and the dataset has none; leave it out"
    if isinstance(spec.features, dict):
        yield "features", ", ".join(spec.features), f"{loss.name} takes one input, not several by name"
    embedded = next((name for name, each in spec.encode.items() if isinstance(each, EmbeddingSpec)), None)
    if embedded is not None:
        yield "encode", embedded, f"{loss.name} has no use for numbers of rows: use `kind: one_hot` or `hash`"
    yield from _downsampling_problems(spec, loss)
    yield from _model_problems(spec, loss)
    match loss:
        case ReconstructionSpec() if isinstance(spec.parser, TextParserSpec | TokenizerParserSpec):
            yield "loss.name", loss.name, "numbers of tokens have no distance: use causal_tokens or masked_tokens"
        case ContrastiveSpec():
            yield from _contrastive_problems(spec)
        case TokensSpec():
            yield from _token_problems(spec, loss)
        case TokenTagsSpec():
            yield from _tag_problems(spec)


def _downsampling_problems(spec: TrainingSpec, loss: ObjectiveSpec) -> Iterator[Problem]:
    if spec.downsampling is None:
        return
    allowed = ("none", *_BLIND) if isinstance(loss, ContrastiveSpec) else ("none", *_BLIND, "loss")
    policies: list[PolicySpec] = [spec.downsampling, *spec.downsampling.schedule]
    for i, policy in enumerate(policies):
        field = "downsampling" if i == 0 else f"downsampling.schedule.{i - 1}"
        if policy.policy not in allowed:
            rule = f"needs labels, or losses of single samples that {loss.name} does not have: use {', '.join(allowed[1:])}"
            shown = policy.policy if isinstance(policy.policy, str) else policy.policy.factory
            yield f"{field}.policy", shown, rule
        if policy.options.get("balance", "none") != "none":
            yield f"{field}.options.balance", policy.options["balance"], "balances classes, and the dataset has no label"


def _contrastive_problems(spec: TrainingSpec) -> Iterator[Problem]:
    if all(each.when == "evaluate" for each in spec.transforms):
        yield "transforms", "(none)", "nt_xent compares two views of a sample: give a transform of training that draws"
    if spec.batch_size < 2:
        yield "batch_size", spec.batch_size, "nt_xent compares the samples of a batch: at least 2"
    if spec.accumulate > 1:
        yield "accumulate", spec.accumulate, "nt_xent compares samples of one batch, not of several: raise batch_size instead"


def _token_problems(spec: TrainingSpec, loss: TokensSpec) -> Iterator[Problem]:
    name = getattr(loss, "name", "")
    if spec.parser is None:
        yield "parser", None, f"{name} takes rows of token numbers: use the parser `text` or `tokenizer`, or one of your own"
    if isinstance(spec.parser, TextParserSpec) and spec.parser.text.buckets >= loss.vocabulary:
        rule = f"the parser makes numbers up to {spec.parser.text.buckets}, so at least {spec.parser.text.buckets + 1}"
        yield "loss.vocabulary", loss.vocabulary, rule


def _tag_problems(spec: TrainingSpec) -> Iterator[Problem]:
    parser = spec.parser
    if isinstance(parser, TokenizerParserSpec) and parser.tokenizer.tags is None:
        yield "parser.tokenizer.tags", None, "must name the column with the tags of the words"
    if not isinstance(parser, str | ParserSpec | TokenizerParserSpec):
        rule = "token_tags takes tokens and their tags: use the parser `tokenizer` with `tags`, or one of your own"
        yield "parser", None if parser is None else "(on)", rule
    if spec.transforms:
        yield "transforms", spec.transforms[0].path, "would change tokens and tags alike; leave it out"


def _model_problems(spec: TrainingSpec, loss: ObjectiveSpec) -> Iterator[Problem]:
    """Models that do not answer what a loss asks."""
    model, per_token = spec.model, isinstance(loss, TokensSpec | TokenTagsSpec)
    if isinstance(model, TransformersSpec):
        task = next((task for task, name in TOKEN_LOSSES.items() if name == loss.name), None)
        if per_token and model.task != task:
            yield "model.task", model.task, f"has no outputs that {loss.name} needs; use {task}"
        elif not per_token and (name := TOKEN_LOSSES.get(model.task)) is not None:
            yield "model.task", model.task, f"is for the loss {name}"
    elif per_token and not isinstance(model, CustomSpec):
        rule = f"has no outputs per token, as {loss.name} needs; use `hf`, or a model of your own (`factory`)"
        yield "model.name", model.name, rule
