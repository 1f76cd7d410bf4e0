"""Distributes the variables of a run over several parameter servers.

Each new variable goes to the server with the fewest bytes. Slots and averages
are on the server of their variable. A payload is ordered by server, so the push
to a server is one range of words.
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
  """The share of one server.

  Attributes:
    replica: replica with the server's variables only.
    variables: indices of the server's parameters in the model.
    statistics: indices of the server's moving statistics in the model.
    codec: codec of the server's parameters only.
    words: range of the share in a payload.
    probes: int64 [probes of the share], indices in the probes of the model.
  """

  replica: replicas.Replica
  variables: tuple[int, ...]
  statistics: tuple[int, ...]
  codec: gradients.GradientCodec
  words: slice
  probes: np.ndarray


@contextlib.contextmanager
def balanced(devices: Sequence[str]) -> Iterator[None]:
  """Context that creates each variable on the device with the fewest bytes.

  Untrained variables, such as moving statistics, go to the device of the
  parameter that was created before them.
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
  """Splits a model's codec and a replica by the devices of its variables.

  Returns:
    (codec of the model with payloads ordered by share, the shares).
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
      # A separate random stream per bucket, so that no two servers' variables
      # draw the same bits.
      buckets.append(bucket._replace(indices=indices, stream=len(buckets)))
  return gradients.GradientCodec(tuple(buckets)), shares
