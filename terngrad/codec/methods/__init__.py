"""Gradient compression methods, one module for each."""
