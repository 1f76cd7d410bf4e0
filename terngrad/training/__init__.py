"""Training: replicas, one step, one loop, checkpoints and evaluation."""
