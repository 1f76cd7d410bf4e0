"""Experiments of many runs: their definition, and running missing runs."""
