"""Plots of runs, comparisons and decisions, as PNG files and as Markdown. matplotlib is imported where it is used."""
