"""Measurements: interleaved timing, tables, and rival implementations."""
