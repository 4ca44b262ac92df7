"""Results of triggers: training sets, models, predictions and evaluations."""
