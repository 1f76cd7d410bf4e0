"""How several parameter servers share the variables of a run.

Whole variables are dealt by their bytes as the model makes them; slots and
averages stand beside their variable. A payload comes share after share, so that
the push to a server is one range of words.
"""

import contextlib
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from terngrad.codec import policy
from terngrad.reduce import bucketing
from terngrad.reduce import buckets as buckets_lib
from terngrad.reduce import gradients
from terngrad.step import replicas


class Share(NamedTuple):
  """What one server has.

  Attributes:
    replica: of its variables alone.
    variables: the indices of its parameters in the model.
    statistics: the indices of its moving statistics.
    codec: of its parameters alone.
    words: of a payload.
    probes: int64 [its probes], the indices in a probe.
  """

  replica: replicas.Replica
  variables: tuple[int, ...]
  statistics: tuple[int, ...]
  codec: gradients.GradientCodec
  words: slice
  probes: np.ndarray


@contextlib.contextmanager
def dealt(devices: Sequence[str]) -> Iterator[None]:
  """A context in which variables go to the device with the fewest bytes.

  What is not trained, a layer's moving statistics, stands where the parameter
  before it does.
  """
  held = dict.fromkeys(devices, 0)
  device = devices[0]

  def create(
    next_creator: Callable[..., tf.Variable], **kwargs: Any
  ) -> tf.Variable:
    nonlocal device
    if kwargs.get('trainable', True):
      device = min(held, key=held.__getitem__)
    with tf.device(device):
      variable = next_creator(**kwargs)
    held[device] += variable.shape.num_elements() * variable.dtype.size
    return variable

  with tf.variable_creator_scope(create):
    yield


def share(
  codec: gradients.GradientCodec, server: replicas.Replica
) -> tuple[gradients.GradientCodec, list[Share]]:
  """Cuts a run's codec by where the server's variables are.

  Args:
    codec: of the model.
    server: its variables are on any devices.

  Returns:
    (the codec whose payloads come share after share, the shares).
  """
  chosen = {
    index: (bucket.method, shape)
    for bucket in codec.buckets
    for index, shape in zip(bucket.indices, bucket.shapes, strict=True)
  }
  variables = (*server.trainable, *server.statistics)
  shares: list[Share] = []
  buckets: list[buckets_lib.Bucket] = []
  start = 0
  probed = codec.probed_variables()
  for device in dict.fromkeys(variable.device for variable in variables):
    mine, statistics = (
      tuple(i for i, v in enumerate(kind) if v.device == device)
      for kind in (server.trainable, server.statistics)
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
