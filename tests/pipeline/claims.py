"""A policy that says that its triggers do not depend on models, and is wrong."""

from collections.abc import Mapping
from typing import Any

from modyn_dagster.triggering import Decision, ModelTrained, Stream, TriggeringPolicy
from modyn_dagster.triggering.measurement import Measurement


class Claiming(TriggeringPolicy):
    """Waits for ``first`` samples, then for three times as many as the newest model was trained on."""

    def __init__(self, first: int) -> None:
        self.first = self._every = first
        self._last = -1

    @property
    def depends_on_models(self) -> bool:
        return False

    def next_point(self, cursor: int, stream: Stream) -> int | None:
        return stream.nth_after(self._last, self._every)

    def decide(self, point: int, measurement: Measurement | None = None) -> Decision:
        self._last = point
        return Decision(True, point, f"{self._every} samples")

    def model_trained(self, trained: ModelTrained) -> None:
        self._every = 3 * trained.n_samples

    def state_dict(self) -> dict[str, Any]:
        return {"last": self._last, "every": self._every}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._last, self._every = int(state.get("last", -1)), int(state.get("every", self.first))
