"""Metrics of evaluation samples: kernels, the registry of names, batched evaluation over slices, and confidence intervals."""
