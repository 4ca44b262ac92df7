"""Time that calls take on each node of a cluster, to name a node that is much slower than the others.

A slow node changes no result: it holds up whoever waits for its calls. So nothing is done about it but to say so.
"""

from collections import defaultdict
from statistics import median
from typing import Final

#: A call, or a node, counts as slow from so many times the median of the others on.
SLOW: Final = 3.0
#: Calls on a node, and elsewhere, before they are compared: the first one of a worker imports what it needs.
_ENOUGH: Final = 2


class Pace:
    """Seconds of the calls of one function, by node.

    >>> pace = Pace("package.train", least=1.0)
    >>> [pace.took(node, 2.0) for node in ("10.0.0.1", "10.0.0.1", "10.0.0.2")]
    [None, None, None]
    >>> pace.took("10.0.0.2", 20.0)
    'node 10.0.0.2 is slow: calls of package.train take 11 s there, 5.5 times the 2 s of other nodes'

    Args:
        work: names the function.
        least: seconds that a call takes at least before it counts as slow.
    """

    def __init__(self, work: str, least: float) -> None:
        self._work, self._least = work, least
        self._seconds: defaultdict[str, list[float]] = defaultdict(list)
        self._named: set[str] = set()

    def took(self, node: str, seconds: float) -> str | None:
        """Count a call that is over; returns what to say about its node, once for each that is slow."""
        self._seconds[node].append(seconds)
        own, others = self._seconds[node], self._others(node)
        if node in self._named or min(len(own), len(others)) < _ENOUGH or not self._is_slow(median(own), median(others)):
            return None
        self._named.add(node)
        return f"node {node} is slow: calls of {self._work} take {median(own):.3g} s there, {_times(median(own), others)}"

    def is_overdue(self, seconds: float) -> bool:
        """Tell whether a call that has been waited for so long is worth a look at where it is."""
        known = [each for found in self._seconds.values() for each in found]
        return len(known) >= _ENOUGH and self._is_slow(seconds, median(known))

    def runs(self, node: str, seconds: float) -> str | None:
        """Judge a call that is still under way; returns what to say about its node, once for each that is slow."""
        others = self._others(node)
        if node in self._named or len(others) < _ENOUGH or not self._is_slow(seconds, median(others)):
            return None
        self._named.add(node)
        return f"node {node} is slow: a call of {self._work} has been there for {seconds:.3g} s, {_times(seconds, others)}"

    def _others(self, node: str) -> list[float]:
        return [each for name, found in self._seconds.items() if name != node for each in found]

    def _is_slow(self, seconds: float, usual: float) -> bool:
        return seconds >= self._least and seconds > SLOW * usual


def _times(seconds: float, others: list[float]) -> str:
    usual = median(others)
    return f"{seconds / max(usual, 1e-3):.2g} times the {usual:.3g} s of other nodes"
