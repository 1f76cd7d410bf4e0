"""Checks of a GPU, each in a process with a time limit."""
