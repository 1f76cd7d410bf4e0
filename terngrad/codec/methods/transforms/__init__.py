"""Methods that transform gradients first: rotations and low-rank products."""
