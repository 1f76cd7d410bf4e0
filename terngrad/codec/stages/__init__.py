"""Clips, quantizers, packings and random bits, and codes made of them."""
