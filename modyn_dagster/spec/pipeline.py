"""Specs of pipelines: trigger, selection, training, evaluation and operation."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from modyn_dagster.spec.base import Duration, Name, Owner, Spec
from modyn_dagster.spec.evaluation import EvaluateSplit, EvaluationSpec, TrainingSetData
from modyn_dagster.spec.learning.label_delay import LabelDelay
from modyn_dagster.spec.notification.notify import NotifySpec
from modyn_dagster.spec.operation import Display, ModelStoreSpec, ResourcesSpec, Retention
from modyn_dagster.spec.promotion.gate import PromotionSpec
from modyn_dagster.spec.selection import CHOSEN_BY_MODELS, SelectionSpec, is_usage_aware
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.spec.triggers.trigger import TriggerSpec

#: Fields that do not change a run; the hash of the spec leaves them out.
DISPLAY_FIELDS: Final = frozenset({"description", "owners", "display", "notify", "max_run_time"})
#: Fields that change only the speed of a run or the size of its files; the hash leaves them out too.
HOW_FIELDS: Final[Mapping[str, Any]] = {
    "training": {"parser": {"workers": True, "images": {"workers": True}, "sounds": {"workers": True}}, "checkpoint": True},
    "model_store": True,
    "retention": {"models": True},
    "resources": True,
}


class PipelineSpec(Spec):
    """One file of ``pipelines/``."""

    name: Name
    dataset: Name
    description: str = ""
    owners: list[Owner] = Field([], description="`team:name` or an e-mail address, shown by Dagster.")
    display: Display = Display()
    label_delay: LabelDelay | None = Field(
        None,
        exclude_if=lambda delay: delay is None,
        description="Simulated: the pipeline sees the labels of a labelled history so much later. Default: with their samples.",
    )
    trigger: TriggerSpec
    selection: SelectionSpec = SelectionSpec()
    training: TrainingSpec
    evaluation: EvaluationSpec
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    threads: PositiveInt = Field(
        1, description="Threads that train, measure and evaluate; they decide bits, so they are recorded."
    )
    start: Literal["beginning", "now"] = Field("beginning", description="Where a live run begins.")
    on_failure: Literal["stop", "continue"] = "stop"
    max_attempts: PositiveInt = 3
    max_run_time: Duration = Field(
        "1d", description="Longest time a Dagster run that trains, measures or evaluates may take; then it hangs and is ended."
    )
    retention: Retention = Retention()
    model_store: ModelStoreSpec = ModelStoreSpec()
    resources: ResourcesSpec = Field(
        ResourcesSpec(),
        description="Cores, GPUs and memory that runs reserve on their machine, by stage; runs wait for each other where "
        "there are too few. Default: nothing is reserved.",
        exclude_if=lambda value: value == ResourcesSpec(),
    )
    promotion: PromotionSpec | None = Field(
        None,
        exclude_if=lambda value: value is None,
        description="Rules by which a newer model becomes the champion. Default: a model is the champion once its mean score is "
        "at least that of the champion before, which is shown and changes nothing.",
    )
    live: Literal["newest", "champion"] | None = Field(
        None,
        exclude_if=lambda value: value is None,
        description="The model that serves, and that performance, detector and drift triggers judge. Default: the champion of "
        "`promotion`, and without that the newest.",
    )
    sensor_interval: PositiveInt = Field(30, description="Seconds between two looks of the triggering sensor.")
    notify: NotifySpec | None = Field(None, description="Whom to tell of triggers, failed trainings and bad scores of live runs.")

    @property
    def live_model(self) -> Literal["newest", "champion"]:
        """The model that serves and that triggers judge."""
        return self.live or ("newest" if self.promotion is None else "champion")

    @model_validator(mode="after")
    def _champions_are_promoted(self) -> Self:
        if self.promotion is None:
            if self.live == "champion":
                raise ValueError("live: champion needs `promotion`, the rules by which a model becomes the champion")
            if self.training.use_previous_model == "champion":
                raise ValueError("training.use_previous_model: champion needs `promotion`, the rules by which a model becomes it")
            return self
        block, metric = self.promotion, self.promotion.metric or self.evaluation.score_metric
        if problem := block.metric_problem(metric):
            raise ValueError(f"promotion.metric: {problem}")
        if not isinstance(self.evaluation.data, EvaluateSplit):
            raise ValueError("promotion needs evaluation.data evaluate: the pairs are samples of the pipeline's own stream")
        if strange := [
            g.slice for g in block.guardrails.metrics if g.slice is not None and g.slice not in self.evaluation.slices
        ]:
            known = ", ".join(self.evaluation.slices) or "none"
            raise ValueError(f"promotion.guardrails: {strange[0]!r} is not among evaluation.slices: {known}")
        if self.retention.predictions is not None:
            raise ValueError("retention.predictions must be null: a test reads the predictions of candidates and of the champion")
        return self

    @model_validator(mode="after")
    def _remembers_what_was_used(self) -> Self:
        if self.retention.training_sets is not None and any(map(is_usage_aware, self.selection.strategies)):
            raise ValueError("retention.training_sets must be null: the selection strategy looks into all earlier training sets")
        return self

    @model_validator(mode="after")
    def _reserves_what_it_uses(self) -> Self:
        for stage in ("train", "measure", "evaluate"):
            block = getattr(self.resources, stage)
            ranks = self.training.ranks if stage == "train" else 1
            if block is not None and block.cpus is not None and block.cpus < self.threads * ranks:
                least = f"threads, {self.threads}" if ranks == 1 else f"threads times ranks, {self.threads * ranks}"
                raise ValueError(f"resources.{stage}.cpus must be at least {least}: so many compute")
            if block is not None and 0 < block.gpus < ranks:
                raise ValueError(f"resources.{stage}.gpus must be at least training.ranks, {ranks}: a GPU for each")
            if block is not None and block.gpus and stage != "measure" and self.training.device == "cpu":
                raise ValueError(f"resources.{stage}.gpus needs training.device cuda or auto; cpu uses none")
        return self

    @model_validator(mode="after")
    def _keeps_models_that_strategies_ask(self) -> Self:
        if self.retention.models is not None and any(isinstance(s, CHOSEN_BY_MODELS) for s in self.selection.strategies):
            raise ValueError(
                "retention.models must be null: the selection strategy asks earlier models when a training set is made again"
            )
        return self

    @model_validator(mode="after")
    def _keeps_what_it_is_judged_on(self) -> Self:
        data = self.evaluation.data
        if self.retention.training_sets is not None and isinstance(data, TrainingSetData) and data.pipeline is None:
            raise ValueError("retention.training_sets must be null: models are judged on the training sets")
        return self

    @model_validator(mode="after")
    def _trains_again_the_same(self) -> Self:
        for field in ("retrain", "strategy"):
            if getattr(self.model_store, field) not in (True, "provenance"):
                continue
            if not self.training.deterministic:
                raise ValueError(f"model_store.{field} needs training.deterministic: true, to train again bit for bit")
            if self.training.carry_optimizer and self.retention.optimizers is not None:
                raise ValueError(f"model_store.{field} needs retention.optimizers: null, for training starts from their states")
        return self

    @model_validator(mode="after")
    def _watched_metrics_are_measured(self) -> Self:
        for field, metric in (self.notify.metrics if self.notify is not None else {}).items():
            if metric not in self.evaluation.metrics:
                raise ValueError(f"notify.{field}.metric must be one of evaluation.metrics: {', '.join(self.evaluation.metrics)}")
        return self
