"""Prediction of step times on other networks."""
