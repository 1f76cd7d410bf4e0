"""Measurements: jobs that take turns, tables of them, rivals."""
