"""How several parameter servers share the variables of a run.

Whole variables are dealt by their bytes as the model makes them; slots and
averages stand beside their variable. A payload comes share after share, so that
the push to a server is one range of words.
"""

import contextlib
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from terngrad.codec import policy
from terngrad.reduce import bucketing
from terngrad.reduce import gradients
from terngrad.step import replicas


class Share(NamedTuple):
  """What one server has.

  Attributes:
    replica: `replicas.Replica` of its variables alone.
    variables: tuple of int, the indices of its parameters in the model.
    statistics: tuple of int, the indices of its moving statistics.
    codec: `gradients.GradientCodec` of its parameters alone.
    words: slice of a payload.
    probes: int array, the indices in a probe.
  """

  replica: replicas.Replica
  variables: tuple
  statistics: tuple
  codec: gradients.GradientCodec
  words: slice
  probes: np.ndarray


@contextlib.contextmanager
def dealt(devices):
  """A context in which variables go to the device with the fewest bytes.

  What is not trained, a layer's moving statistics, stands where the parameter
  before it does.

  Args:
    devices: names.
  """
  held = dict.fromkeys(devices, 0)
  last = [devices[0]]

  def create(next_creator, **kwargs):
    if kwargs.get('trainable', True):
      last[0] = min(held, key=held.get)
    with tf.device(last[0]):
      variable = next_creator(**kwargs)
    size = variable.shape.num_elements() * variable.dtype.size
    held[last[0]] += size
    return variable

  with tf.variable_creator_scope(create):
    yield


def share(codec, server):
  """Cuts a run's codec by where the server's variables are.

  Args:
    codec: `gradients.GradientCodec` of the model.
    server: `replicas.Replica`, its variables on any devices.

  Returns:
    (`gradients.GradientCodec` whose payloads come share after share, list of
    `Share`).
  """
  chosen = {}
  for bucket in codec.buckets:
    for index, shape in zip(bucket.indices, bucket.shapes, strict=True):
      chosen[index] = bucket.method, shape
  variables = (*server.trainable, *server.statistics)
  shares, buckets, start = [], [], 0
  probed = codec.probed_variables()
  for device in dict.fromkeys(variable.device for variable in variables):
    mine, statistics = (
      _on(device, kind) for kind in (server.trainable, server.statistics)
    )
    own = bucketing.gradient_codec(
      [policy.VariableSpec('', chosen[index][1]) for index in mine],
      [chosen[index][0] for index in mine],
    )
    shares.append(
      Share(
        replica=server.part(mine, statistics)._replace(device=device),
        variables=mine,
        statistics=statistics,
        codec=own,
        words=slice(start, start + own.num_words),
        probes=np.flatnonzero(np.isin(probed, mine)),
      )
    )
    start += own.num_words
    for bucket in own.buckets:
      indices = tuple(mine[index] for index in bucket.indices)
      # A stream of its own: no two servers' variables draw the same bits.
      buckets.append(bucket._replace(indices=indices, stream=len(buckets)))
  return gradients.GradientCodec(tuple(buckets)), shares


def _on(device, variables):
  """The indices of the variables that stand on a device."""
  return tuple(i for i, v in enumerate(variables) if v.device == device)
