"""Gradient compression for custom training loops and other libraries."""
