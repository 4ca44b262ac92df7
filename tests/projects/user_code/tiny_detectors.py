"""Stream detectors that projects of tests name by import path."""

from collections import deque
from collections.abc import Mapping
from typing import Any


class TooMany:
    """Sounds when the last values add up to more than a limit, and forgets them then."""

    def __init__(self, limit: float = 6.0, last: int = 15) -> None:
        self.limit = limit
        self.values = deque[float](maxlen=last)

    def update(self, value: float) -> bool:
        self.values.append(value)
        sounds = sum(self.values) > self.limit
        if sounds:
            self.values.clear()
        return sounds

    def state_dict(self) -> dict[str, Any]:
        return {"values": list(self.values)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.values.clear()
        self.values.extend(state["values"])
