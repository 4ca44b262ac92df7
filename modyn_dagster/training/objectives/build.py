"""Construction of the objective that a spec names, for inputs of a layout."""

from modyn_dagster.errors import ConfigError
from modyn_dagster.spec.tasks.objectives import (
    CausalTokensSpec,
    ContrastiveSpec,
    MaskedTokensSpec,
    ReconstructionSpec,
    TokenTagsSpec,
)
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training.models.layout import Layout
from modyn_dagster.training.objectives.objective import Objective
from modyn_dagster.training.objectives.tags import TokenTags
from modyn_dagster.training.objectives.tokens import CausalTokens, MaskedTokens
from modyn_dagster.training.objectives.values import Contrastive, Reconstruction


def build_objective(spec: TrainingSpec, seen: Layout, *, source: str) -> Objective | None:
    """Build the objective of a spec; None for a loss that compares outputs with labels.

    Args:
        spec: spec of the training.
        seen: layout of the inputs as the model sees them, after the transforms, and without tags.
        source: name of the pipeline, for errors.

    Raises ``ConfigError`` for tokens that are not one row of numbers per sample.
    """
    shape = seen.inputs[0].shape
    match spec.loss:
        case ReconstructionSpec() as loss:
            return Reconstruction(loss, shape)
        case ContrastiveSpec() as loss:
            return Contrastive(loss)
        case CausalTokensSpec() | MaskedTokensSpec() as loss:
            if len(shape) != 1:
                rule = f"needs a row of token numbers per sample, not {list(shape)}; use the parser `text` or `tokenizer`"
                raise ConfigError(source, "training.loss.name", loss.name, rule)
            if isinstance(loss, CausalTokensSpec):
                return CausalTokens(loss, shape[0], source)
            return MaskedTokens(loss, shape[0], source)
        case TokenTagsSpec() as loss:
            return TokenTags(loss, shape[0], source)
        case _:
            return None
