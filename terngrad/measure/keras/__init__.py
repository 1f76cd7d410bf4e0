"""Benchmarks of Keras's training loop."""
