"""A selection strategy that follows the calendar."""

import numpy as np

from modyn_dagster.selection.own import Chosen, SelectionStrategy, WindowSamples


def newest_of_each_class(share: float = 1.0) -> SelectionStrategy:
    """Keep the newest samples of every class, as many of each as the size allows.

    Args:
        share: of the size that is used, above 0 and at most 1.
    """
    if not 0 < share <= 1:
        raise ValueError(f"share must be above 0 and at most 1, not {share}")

    def choose(samples: WindowSamples) -> Chosen:
        classes, of = np.unique(samples.labels, return_inverse=True)
        each = max(1, int(samples.size * share) // len(classes))
        newest_first = np.arange(len(samples))[::-1]
        kept = [newest_first[of[newest_first] == number][:each] for number in range(len(classes))]
        chosen = np.concatenate(kept)[: samples.size]
        return Chosen(samples.keys[chosen])

    return choose
