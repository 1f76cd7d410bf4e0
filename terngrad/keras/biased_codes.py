"""Warns of biased codes without error feedback."""

import tensorflow as tf
from absl import logging

from terngrad.codec import method as methods
from terngrad.codec import wrapper
from terngrad.codec.methods import registry
from terngrad.compression import variable_codes

# Texts of codecs that were warned of in this process.
_warned: set[str] = set()


def warn(
  codec: variable_codes.CodecOption, devices_per_worker: int = 1
) -> None:
  """Logs once which codes of a codec are biased and have no error feedback."""
  replicas = tf.distribute.get_strategy().num_replicas_in_sync
  workers = max(1, replicas // devices_per_worker)
  for text in dict.fromkeys(text for _, text in variable_codes.rules(codec)):
    if text not in _warned and is_biased(registry.method(text, workers)):
      _warned.add(text)
      logging.warning(
        '%s is biased: it loses the same part of similar gradients in every '
        'step. Use error_feedback+%s, which sends what was lost later.',
        *(text, text),
      )


def is_biased(method: methods.Method) -> bool:
  """Returns whether a method has a bias that error feedback would remove.

  It has none if it is unbiased, if its bias is only a rounding error, or if it
  is biased for a single random rotation only.
  """
  if method.keeps_the_rest:
    return False
  while isinstance(method, wrapper.Wrapper):
    method = method.method
  traits = method.traits
  return not (
    traits.unbiased or traits.rounds or traits.randomness == 'private'
  )
