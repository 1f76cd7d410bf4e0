"""Gradient codes: pure functions on tensors, with declared properties."""
