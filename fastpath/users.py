"""Who uses something now, so that it is not taken away under them."""

import threading
import weakref
from typing import Final

#: Seconds after which to look again: nobody says that a mark was lost.
_PATIENCE: Final = 0.05


class Mark:
    """One use."""

    __slots__ = ("__weakref__",)


class Users:
    """Marks of those who use it. One that an interrupt keeps from being given back vanishes with the frame that held it."""

    def __init__(self) -> None:
        # The same thread may take it again: garbage may be collected, and `wait` called, while it is held.
        self._lock = threading.RLock()
        self._left = threading.Condition(self._lock)
        self._marks: weakref.WeakSet[Mark] = weakref.WeakSet()

    def __len__(self) -> int:
        return len(self._marks)

    def enter(self) -> Mark:
        """From now on it is used."""
        mark = Mark()
        with self._lock:
            self._marks.add(mark)
        return mark

    def leave(self, mark: Mark) -> None:
        """This use is over."""
        with self._lock:
            self._marks.discard(mark)
            self._left.notify_all()

    def wait(self) -> None:
        """Until nobody uses it."""
        with self._lock:
            while self._marks:
                self._left.wait(_PATIENCE)
