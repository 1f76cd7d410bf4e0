"""Sparse methods: send a few elements of the gradients."""
