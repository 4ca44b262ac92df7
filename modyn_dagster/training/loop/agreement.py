"""Agreement of ranks on the training that they share; in one process there is nothing to agree on."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from modyn_dagster.errors import ConfigError
from modyn_dagster.reproducibility.determinism import seed_all_generators
from modyn_dagster.reproducibility.randomness import seed_for
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training.data import check_ranks
from modyn_dagster.training.models.network import Network
from modyn_dagster.training.states import flatten, state_digest
from modyn_dagster.training.team.batch_norm import share_batch_norms, unshareable
from modyn_dagster.training.team.shares import Shares
from modyn_dagster.training.team.team import Team


def require_team(spec: TrainingSpec, team: Team | None, *, source: str) -> None:
    """Check that as many ranks train as the spec names, and that they can share the training; ``ConfigError`` otherwise."""
    if spec.ranks != (1 if team is None else team.size):
        rule = "needs as many processes: call train_in_ranks with a group of them"
        raise ConfigError(source, "training.ranks", spec.ranks, rule)
    check_ranks(spec, source=source)


def agreed_environment(environment: dict[str, Any], team: Team | None) -> dict[str, Any]:
    """Environment of a training: that of every rank, and what carries their messages."""
    if team is None:
        return environment
    team.require_same("the environment", environment)
    return environment | {"ranks": team.size, "backend": team.backend}


def begin_alike(spec: TrainingSpec, network: Network, shares: Shares | None, *, source: str) -> None:
    """Check that ranks can share a model, let its batch norms see the whole batch, and begin with the same weights."""
    if shares is None:
        return
    if (name := unshareable(network.body)) is not None:
        rule = f"the batch norm {name} of the model keeps no running statistics, has no shape yet or is the whole model"
        raise ConfigError(source, "training.ranks", spec.ranks, f"{rule}; use another one, or `ranks: 1`")
    has_norms = share_batch_norms(network.body, shares.team)
    # A forward pass may change buffers, as spectral norm does: then every rank makes every pass.
    shares.meet_in_forward = has_norms or any(True for _ in network.body.buffers())
    if spec.compile is None:
        shares.share_dropouts(network.body)
    if has_norms and spec.compile is not None:
        raise ConfigError(source, "training.compile", "(on)", "a model with batch norm cannot be compiled with ranks")
    _require_same_model(shares.team, "initial", network.state_dict())
    if spec.strategy == "fsdp":
        shares.divide(network.body)


def draw_apart(shares: Shares | None, seed: int) -> None:
    """Let dropout layers go on with the generator as it is, and seed those of a rank for all that draws elsewhere.

    With equal ones, a model that draws by itself would draw the same numbers for a sample of every share.
    """
    if shares is not None:
        shares.masks.state = shares.team.states(shares.masks.generator_state())[0]
        seed_all_generators(seed_for(seed, "rank", shares.team.index))


def end_alike(team: Team | None, weights: Mapping[str, Tensor]) -> None:
    """Check that ranks have trained the same model; ``TrainingError`` otherwise."""
    if team is not None:
        _require_same_model(team, "trained", weights)


def _require_same_model(team: Team, kind: str, weights: Mapping[str, Tensor]) -> None:
    team.require_same(f"the {kind} model", state_digest(*flatten(dict(weights))))
