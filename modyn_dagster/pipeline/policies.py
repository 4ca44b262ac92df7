"""The policy of a pipeline."""

from modyn_dagster.spec.pipeline import PipelineSpec
from modyn_dagster.triggering.build import build_policy
from modyn_dagster.triggering.policy import TriggeringPolicy


def policy_of(spec: PipelineSpec) -> TriggeringPolicy:
    """A fresh policy for a pipeline's trigger block, which knows what its selection keeps of a window."""
    return build_policy(spec.trigger, window=spec.selection.reach, limit=spec.selection.most)
