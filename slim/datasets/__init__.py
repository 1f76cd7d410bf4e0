"""Data sets: converters into TFRecord files and readers of them."""
