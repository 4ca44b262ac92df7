"""Registry of the built-in policies, and their construction from options."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from modyn_dagster.training.downsampling.balance import ByClass
from modyn_dagster.training.downsampling.policies.craig import CRAIG
from modyn_dagster.training.downsampling.policies.glister import Glister
from modyn_dagster.training.downsampling.policies.gradmatch import GradMatch
from modyn_dagster.training.downsampling.policies.hardness import EL2N, Forgetting, GraNd
from modyn_dagster.training.downsampling.policies.herding import Herding
from modyn_dagster.training.downsampling.policies.importance import DLIS, Loss
from modyn_dagster.training.downsampling.policies.infobatch import InfoBatch
from modyn_dagster.training.downsampling.policies.k_center import KCenter
from modyn_dagster.training.downsampling.policies.random_subsets import RS2, RS2WithoutReplacement, Uniform
from modyn_dagster.training.downsampling.policies.rho import RHO
from modyn_dagster.training.downsampling.policies.submodular import FacilityLocation, GraphCut, LogDet
from modyn_dagster.training.downsampling.policies.uncertainty import Entropy, LeastConfidence, Margin
from modyn_dagster.training.downsampling.pool import Policy

#: Dataclasses by policy name. Their fields are the options.
POLICIES: Final[Mapping[str, Any]] = {
    "uniform": Uniform,
    "loss": Loss,
    "dlis": DLIS,
    "least_confidence": LeastConfidence,
    "margin": Margin,
    "entropy": Entropy,
    "rs2": RS2,
    "rs2_without_replacement": RS2WithoutReplacement,
    "rho": RHO,
    "craig": CRAIG,
    "gradmatch": GradMatch,
    "glister": Glister,
    "k_center": KCenter,
    "herding": Herding,
    "facility_location": FacilityLocation,
    "graph_cut": GraphCut,
    "log_det": LogDet,
    "infobatch": InfoBatch,
    "el2n": EL2N,
    "grand": GraNd,
    "forgetting": Forgetting,
}
#: Policies that choose a random number of samples.
UNSIZED: Final = frozenset({"infobatch"})


def build_policy(name: str, options: Mapping[str, Any]) -> Policy:
    """Build a policy from its options and ``balance``; ``ValueError`` for an unknown name or option."""
    if name not in POLICIES:
        raise ValueError(f"no downsampling policy {name!r}; known: {', '.join(POLICIES)}")
    kind, settings = POLICIES[name], dict(options)
    balance = settings.pop("balance", None)
    known = [field.name for field in dataclasses.fields(kind)]
    for option in settings:
        if option not in known:
            raise ValueError(f"{name} has no option {option!r}; its options: {', '.join([*known, 'balance'])}")
    policy: Policy = kind(**settings)
    if balance is None:
        return ByClass(policy, "proportional", required=False) if getattr(kind, "by_class", False) else policy
    return ByClass(policy, balance, fixed_size=name not in UNSIZED) if balance != "none" else policy


def extends(name: str) -> bool:
    """Tell if a policy takes ``selected`` samples into account."""
    return bool(getattr(POLICIES[name], "extends", False))
