"""Configurations: the options of each program and their validation."""
