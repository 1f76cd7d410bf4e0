"""One training step: passes, states, optimizers, updates."""
