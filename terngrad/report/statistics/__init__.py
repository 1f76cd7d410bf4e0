"""Statistics of sweeps: intervals, and comparisons with a baseline."""
