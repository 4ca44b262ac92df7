"""What a policy is shown of the samples it chooses from."""

from dataclasses import dataclass, replace

from torch import Tensor

from modyn_dagster.training.downsampling.history import History
from modyn_dagster.training.downsampling.plan import Plan
from modyn_dagster.training.downsampling.pool import Pool
from modyn_dagster.training.downsampling.scoring import Scored
from modyn_dagster.training.downsampling.validation import Validation


@dataclass(slots=True)
class Pools:
    """Makes the pools of a training, of what its policy needs.

    Attributes:
        plan: the policy and its spec.
        history: of the policy's scores, written with every pool; None unless it needs one.
        irreducible: losses of models that never saw the samples, ``float[n]``; None unless it needs them.
        validation: what was set aside for the policy; None unless it needs it.
    """

    plan: Plan
    history: History | None
    irreducible: Tensor | None
    validation: Validation | None

    def of(self, scored: Scored | None, targets: Tensor, positions: Tensor | None, epoch: int) -> Pool:
        """The samples with these targets, or at these positions of the training set; ``scored``: what the model makes of them."""
        n = len(targets) if positions is None else len(positions)
        labels = None if targets.is_floating_point() else targets
        if scored is None:
            return Pool(n, self.plan.name, labels=labels, epoch=epoch)
        irreducible = self.irreducible if positions is not None else None
        pool = Pool(
            n,
            self.plan.name,
            logits=scored.outputs if labels is not None else None,
            labels=labels,
            losses=scored.losses,
            gradients=scored.last_layer() if self.plan.spec.gradient == "last_layer" else scored.gradients,
            embeddings=scored.embeddings,
            irreducible_losses=None if irreducible is None else irreducible[positions].to(scored.losses.device),
            validation_gradient=None if self.validation is None else self.validation.gradient,
            epoch=epoch,
        )
        if positions is not None and self.history is not None:
            pool = replace(pool, history=self.history.record(epoch, positions, self.plan.scores(pool)))
        return pool
