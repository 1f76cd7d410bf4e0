"""Training: assembly of a run, the loop, its records and evaluation."""
