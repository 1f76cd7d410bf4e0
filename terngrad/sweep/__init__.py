"""Experiments of many runs: what they are, and running what is missing."""
