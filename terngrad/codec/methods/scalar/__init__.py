"""Codes of single numbers: each element, or a group with a scale, by itself."""
