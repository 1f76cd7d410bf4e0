"""Codes that send few elements, and the places of them."""
