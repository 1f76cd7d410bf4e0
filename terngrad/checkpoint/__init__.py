"""Checkpoints: saving, resuming, and loading pretrained weights."""
