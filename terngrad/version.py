"""The version of the project: the only place that states it."""

# A plain literal: setup.py reads it as text, without importing the package.
__version__ = '0.2.0'
