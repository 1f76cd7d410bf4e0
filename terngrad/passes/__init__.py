"""Passes of other kinds than one forward and backward of a whole share."""
