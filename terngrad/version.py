"""The version of the project, stated only in this file."""

# A plain literal: setup.py reads it as text, without importing the package.
__version__ = '0.3.0.dev0'
