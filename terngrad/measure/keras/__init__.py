"""Benches of Keras's own loops."""
