"""Codes that send few elements, and their indices."""
