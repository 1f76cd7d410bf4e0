"""Starts `terngrad predict`, by its older name."""

from terngrad.cli import main

run = main.starter('predict', name='predict_image', module=__name__)
