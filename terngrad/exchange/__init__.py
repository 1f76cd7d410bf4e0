"""Exchanges: move payloads between workers and nothing else."""
