"""Configurations: what a run is told, and what is refused."""
