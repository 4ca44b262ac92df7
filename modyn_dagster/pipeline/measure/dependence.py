"""Dependence of a pipeline's triggers on its models: where there is one, decisions wait for trainings and for the live model."""

from modyn_dagster.spec.pipeline import PipelineSpec
from modyn_dagster.spec.triggers.measured import DriftTriggerSpec
from modyn_dagster.spec.triggers.trigger import nested_blocks
from modyn_dagster.triggering.build import pipeline_policy


def dependence_reason(spec: PipelineSpec) -> str | None:
    """Say why the triggers of a pipeline depend on its models; None where they do not."""
    if pipeline_policy(spec).depends_on_models:
        return f"trigger.kind {spec.trigger.kind}: its triggers depend on models, or on what trainings took"
    if spec.training.standardize and any(isinstance(block, DriftTriggerSpec) for _, block in nested_blocks(spec.trigger)):
        return "training.standardize: drift is measured on columns as the live model standardises them"
    return None


def champion_decides(spec: PipelineSpec) -> bool:
    """Test whether triggers or trainings of a pipeline depend on which model is the champion."""
    if spec.promotion is None:
        return False
    if spec.training.use_previous_model == "champion":
        return True
    return spec.live_model == "champion" and dependence_reason(spec) is not None
