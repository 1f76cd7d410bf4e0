"""Clips, quantizers, packings and random bits, the parts of codes."""
