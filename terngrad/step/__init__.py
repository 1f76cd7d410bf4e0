"""One training step: passes, replicas, optimizers and updates."""
