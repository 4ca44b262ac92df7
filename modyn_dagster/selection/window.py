"""The window of a trigger: which stretch of the stream its training set is selected from."""

from collections.abc import Sequence

from modyn_dagster.keys import ORIGIN, KeyRange
from modyn_dagster.spec.selection import LastTriggers, Window


def window_of(window: Window, *, until: int, trained: Sequence[int], origin: int = ORIGIN) -> KeyRange:
    """The key range of a trigger at key ``until``.

    Args:
        window: of the spec. ``last_triggers: n`` reaches back to the n-th last trained trigger, so 1 is the same as
            ``since_last_trigger``; ``all`` is the whole stream, also what arrived before the run began.
        until: the trigger's key.
        trained: keys of the run's earlier *trained* triggers, ascending; skipped and failed ones left no model, so what they
            would have trained on still counts as new.
        origin: where the run began.
    """
    if window == "all":
        return KeyRange(ORIGIN, until)
    back = window.last_triggers if isinstance(window, LastTriggers) else 1
    return KeyRange(trained[-back] if len(trained) >= back else origin, until)
