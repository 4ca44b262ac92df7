"""Policies around other policies: budget, cooldown, minimum of samples, maximum of triggers, ensemble."""
