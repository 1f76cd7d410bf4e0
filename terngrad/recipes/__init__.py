"""Recipes of local steps: published combinations of options, by name.

Each module is one recipe: its paper, its equations and its departures.
"""
