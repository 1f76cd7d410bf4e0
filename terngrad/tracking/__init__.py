"""Experiment trackers: Weights & Biases and MLflow."""
