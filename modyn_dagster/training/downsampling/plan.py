"""Downsampling of a training: its policy, checked against the task."""

from dataclasses import dataclass, field, replace
from typing import Self, cast

from torch import Tensor

from modyn_dagster.errors import ConfigError
from modyn_dagster.imports import import_callable
from modyn_dagster.spec.learning.downsampling import CLASSES_ONLY, CustomPolicySpec, PolicySpec
from modyn_dagster.spec.training import TaskKind
from modyn_dagster.training.downsampling.balance import ByClass
from modyn_dagster.training.downsampling.pool import Policy, Pool
from modyn_dagster.training.downsampling.registry import UNSIZED, build_policy


@dataclass(frozen=True)
class Plan:
    """Policy and its spec.

    Attributes:
        spec: mode, ratio, period and so on.
        policy: chooses samples.
        name: name of the policy, or the import path of its factory.
        needs: inputs of the policy beside labels.
    """

    spec: PolicySpec
    policy: Policy
    name: str
    needs: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "needs", frozenset(getattr(self.policy, "needs", ())))

    @classmethod
    def of(cls, spec: PolicySpec, kind: TaskKind, *, epochs: int, source: str) -> Self:
        """Build the policy; ``ConfigError`` for unknown options and unsuitable tasks."""
        if isinstance(spec.policy, CustomPolicySpec):
            return cls(spec, _custom(spec.policy.factory, spec, source), spec.policy.factory)
        options = dict(spec.options)
        if spec.policy == "infobatch":
            options.setdefault("epochs", epochs)
        if kind == "target" and (spec.policy in CLASSES_ONLY or options.get("balance", "none") != "none"):
            raise ConfigError(source, "training.downsampling.policy", spec.policy, "needs classes; the dataset has a target")
        try:
            policy = build_policy(spec.policy, options)
        except (TypeError, ValueError) as error:
            raise ConfigError(source, "training.downsampling.options", spec.options, str(error)) from error
        if isinstance(policy, ByClass) and spec.mode == "batch_then_sample":
            # The last batch may have a budget smaller than the number of classes.
            policy = replace(policy, required=False)
        return cls(spec, policy, spec.policy)

    @property
    def holds_out(self) -> bool:
        """True if a share of the training set is held out of training."""
        return "validation_gradient" in self.needs or ("irreducible_losses" in self.needs and self.spec.holdout.kind == "simple")

    @property
    def unsized(self) -> bool:
        """True if the number of chosen samples is random."""
        return self.name in UNSIZED

    def needs_gradients(self, kind: TaskKind) -> bool:
        """Tell if the policy needs gradients at the outputs. They replace logits where the outputs are not logits."""
        triggers = {"gradients", "validation_gradient"} | ({"logits"} if kind == "target" else set())
        return self.spec.gradient == "last_layer" or bool(self.needs & triggers)

    def scores(self, pool: Pool) -> Tensor:
        """Scores of every sample in an epoch for the history, ``float[n]``."""
        policy = self.policy.policy if isinstance(self.policy, ByClass) else self.policy
        scores: Tensor = getattr(policy, "scores")(pool)  # noqa: B009 - only policies that need a history have them
        return scores

    def budget(self, n: int) -> int:
        """Number of samples to choose among ``n``: the ratio, rounded, at least one."""
        return max(1, round(self.spec.ratio * n))


def _custom(path: str, spec: PolicySpec, source: str) -> Policy:
    factory = import_callable(path, source=source, field="training.downsampling.policy.factory")
    try:
        policy = factory(**spec.options)
    except Exception as error:
        rule = f"{path} refused it: {type(error).__name__}: {error}"
        raise ConfigError(source, "training.downsampling.options", spec.options, rule) from error
    if not callable(policy):
        rule = f"must return a callable (pool, k, seed) -> Chosen, not {type(policy).__name__}"
        raise ConfigError(source, "training.downsampling.policy.factory", path, rule)
    return cast(Policy, policy)
