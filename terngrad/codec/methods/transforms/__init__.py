"""Codes of what a gradient is turned into: rotations, and low ranks."""
