"""Composite models and pipeline scores: active model per interval, retention, regret, Pareto front, champion."""
