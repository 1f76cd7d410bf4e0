"""Special passes: accumulation, recomputed activations and local steps."""
