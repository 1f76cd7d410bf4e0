"""From the gradients of workers to the mean that all devices have."""
