"""Gradient methods by name, one file each."""
