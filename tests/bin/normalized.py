"""Layers of small nets with batch normalization."""

from slim.nets.blocks import layers


def layers_of(weight_decay, seed):
  """What makes them; see `layers.Layers`."""
  style = layers.Style(
    layers.truncated_normal(0.1),
    weight_decay,
    batch_norm=layers.BatchNorm(decay=0.9, epsilon=0.001, scale=True),
  )
  return layers.Layers(style, seed)
