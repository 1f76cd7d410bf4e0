"""Gradients there and back outside of a training step.

For methods of one round and without states.
"""

import tensorflow as tf

from terngrad.reduce import gradients as gradients_lib


def probe(codec, gradients):
  """The probe of gradients, float32 [num_probes]; see `GradientCodec.begin`."""
  turn = gradients_lib.WorkerStep(
    tf.constant(0, tf.int64), tf.constant(0, tf.int64), 1
  )
  return codec.begin(gradients, [()] * len(codec.buckets), turn)[1]


def encode(codec, gradients, local_probe, shared_probe, keys):
  """A worker's payload, for methods of one round and without states.

  Args:
    codec: `gradients.GradientCodec`.
    gradients: list of float32, in the order and shapes of the variables, or
      what `GradientCodec.flatten` makes of it, float32 [num_elements].
    local_probe: float32 [num_probes], this worker's probe.
    shared_probe: float32 [num_probes], the agreed probe.
    keys: uint32 [buckets, 3], from `GradientCodec.keys`.

  Returns:
    int32 [num_words].
  """
  if isinstance(gradients, list):
    carried = [
      [tf.reshape(gradients[i], [-1]) for i in bucket.indices]
      for bucket in codec.buckets
    ]
  else:
    sizes = [bucket.num_elements for bucket in codec.buckets]
    carried = [[part] for part in gradients_lib.split(gradients, sizes, axis=0)]
  zero = tf.constant(0, tf.int64)
  step = gradients_lib.WorkerStep(
    zero, zero, 1, tf.constant(0), keys, local_probe, shared_probe
  )
  carried = codec.carry(carried, step)
  return codec.send(0, carried, [()] * len(codec.buckets), [], step)[0]


def decode_mean(codec, parts, shared_probe):
  """The average gradient of workers; see `GradientCodec.decode_words`."""
  return codec.decode_words(parts, shared_probe)
