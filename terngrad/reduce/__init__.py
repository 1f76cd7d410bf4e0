"""Reduces the gradients of all workers to their mean on every device."""
