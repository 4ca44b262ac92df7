"""Strategies of a user's own: a function over the arrays of a window, or a statement of SQL."""

from modyn_dagster.selection.own.protocol import Chosen, SelectionStrategy, WindowSamples

__all__ = ["Chosen", "SelectionStrategy", "WindowSamples"]
