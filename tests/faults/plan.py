"""Plans of faults: rules that the library under ``preload`` follows, in a file that all processes of a test share.

A plan without rules only counts, or keeps the shadow of what a power cut would leave.
"""

import ctypes
import errno
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

#: In the order of ``enum call`` and ``enum action`` of plan.h.
CALLS: Final = (
    "open",
    "read",
    "write",
    "fsync",
    "rename",
    "remove",
    "mkdir",
    "truncate",
    "connect",
    "send",
    "recv",
    "clock",
)
ACTIONS: Final = ("count", "fail", "short", "delay", "kill", "jump")
FILE_CALLS: Final = CALLS[:8]
CHANGES: Final = ("write", "fsync", "rename", "remove", "mkdir", "truncate")
SOCKET_CALLS: Final = CALLS[8:11]
_LONGEST_PATH: Final = 512
_MAX_RULES: Final = 16


class _Rule(ctypes.Structure):
    _fields_ = (
        ("calls", ctypes.c_uint32),
        ("action", ctypes.c_uint32),
        ("value", ctypes.c_int64),
        ("after", ctypes.c_int64),
        ("times", ctypes.c_int64),
        ("seen", ctypes.c_int64),
        ("hits", ctypes.c_int64),
        ("pattern", ctypes.c_char * 216),
    )


class _Plan(ctypes.Structure):
    _fields_ = (
        ("root", ctypes.c_char * _LONGEST_PATH),
        ("shadow", ctypes.c_char * _LONGEST_PATH),
        ("peer", ctypes.c_char * _LONGEST_PATH),
        ("clock_offset", ctypes.c_int64),
        ("n_rules", ctypes.c_uint32),
        ("unused", ctypes.c_uint32),
        ("rules", _Rule * _MAX_RULES),
    )


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of some calls.

    Attributes:
        calls: names of ``CALLS``.
        action: a name of ``ACTIONS``; ``fail`` with the name of an error, such as ``EIO``, in ``error``.
        after: matching calls that go well before the first that is struck.
        times: calls that are struck before it heals; 0: it never does.
        value: microseconds of a delay, seconds of a jump of the clock.
        pattern: of paths below the root, as of a shell; ``*`` also matches slashes.
    """

    calls: Sequence[str]
    action: str
    after: int = 0
    times: int = 1
    error: str = ""
    value: int = 0
    pattern: str = "*"

    def __str__(self) -> str:
        length = f", {self.times} times" if self.times else ", for good"
        what = self.error or " ".join([self.action, *([str(self.value)] if self.value else [])])
        return f"{what} at {'/'.join(self.calls)} of {self.pattern} after {self.after} calls{length}"


@dataclass(frozen=True)
class Tally:
    """Counters of one rule: matching calls, and those that it struck."""

    seen: int
    hits: int


@dataclass
class Plan:
    """Rules for files below ``root`` and connections to ``peer``, in a file that processes are given by its path."""

    path: Path
    root: Path | None = None
    peer: str = ""
    shadow: Path | None = None
    faults: Sequence[Fault] = field(default_factory=list)

    def __post_init__(self) -> None:
        content = _Plan(
            root=str(self.root.resolve() if self.root else "").encode(),
            shadow=str(self.shadow or "").encode(),
            peer=self.peer.encode(),
            n_rules=len(self.faults),
        )
        for rule, fault in zip(content.rules, self.faults):
            rule.calls = sum(1 << CALLS.index(call) for call in fault.calls)
            rule.action = ACTIONS.index(fault.action)
            rule.value = getattr(errno, fault.error) if fault.error else fault.value
            rule.after, rule.times, rule.pattern = fault.after, fault.times, fault.pattern.encode()
        self.path.write_bytes(bytes(content))

    def tallies(self) -> list[Tally]:
        """Counters as they are, one per fault."""
        content = _Plan.from_buffer_copy(self.path.read_bytes())
        return [Tally(rule.seen, rule.hits) for rule in content.rules[: content.n_rules]]

    @property
    def hits(self) -> int:
        """Calls that were struck by any fault."""
        return sum(tally.hits for tally in self.tallies())

    def set_clock(self, seconds: int) -> None:
        """Move the clock of the processes under way to this many seconds ahead of the true one."""
        self._set(_Plan.clock_offset.offset, ctypes.c_int64(seconds))

    def heal(self) -> None:
        """End all faults, also of processes under way."""
        self._set(_Plan.n_rules.offset, ctypes.c_uint32(0))

    def _set(self, offset: int, value: ctypes.c_int64 | ctypes.c_uint32) -> None:
        with open(self.path, "r+b") as file:
            file.seek(offset)
            file.write(bytes(value))

    def __str__(self) -> str:
        told = zip(self.faults, self.tallies())
        return "; ".join(f"{fault} ({tally.hits} of {tally.seen})" for fault, tally in told) or "no faults"
