"""Scalar codes: quantize single elements, some with a scale for each group."""
