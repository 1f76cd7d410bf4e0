"""Converts decoded images to the input of a net."""
