"""Compressed gradients for loops and libraries of others."""
