"""A terminal for programs that look at standard error: what they write is kept."""

import io
import sys

import pytest


class Terminal(io.StringIO):
    """Text that was written to a terminal."""

    def isatty(self) -> bool:
        return True


def terminal_of(monkeypatch: pytest.MonkeyPatch, columns: int = 80) -> Terminal:
    """Let standard error be a terminal that can draw."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(columns))
    return terminal
