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
def balance(devices: Sequence[str]) -> Iterator[None]:
  """Context that creates each variable on the device with the fewest bytes.

  Untrained variables, such as moving statistics, go to the device of the
  parameter that was created before them.
  """
  num_bytes = dict.fromkeys(devices, 0)
  device = devices[0]

  def create(
    next_creator: Callable[..., tf.Variable], **kwargs: Any
  ) -> tf.Variable:
    nonlocal device
    if kwargs.get('trainable', True):
      device = min(num_bytes, key=num_bytes.__getitem__)
    with tf.device(device):
      variable = next_creator(**kwargs)
    num_bytes[device] += variable.shape.num_elements() * variable.dtype.size
    return variable

  with tf.variable_creator_scope(create):
    yield


def make_shares(
  codec: gradients.GradientCodec, server: replicas.Replica
) -> tuple[gradients.GradientCodec, list[Share]]:
  """Splits a model's codec and a replica by the devices of its variables.

  Returns:
    (codec of the model with payloads ordered by share, the shares).
  """
  codes = {
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
    parameters, statistics = (
      tuple(i for i, v in enumerate(kind) if v.device == device)
      for kind in (server.trainable, server.statistics)
    )
    share_codec = bucketing.gradient_codec(
      [policy.VariableSpec('', codes[index][1]) for index in parameters],
      [codes[index][0] for index in parameters],
    )
    shares.append(
      Share(
        replica=server.part(parameters, statistics)._replace(device=device),
        variables=parameters,
        statistics=statistics,
        codec=share_codec,
        words=slice(start, start + share_codec.num_words),
        probes=np.flatnonzero(np.isin(probed, parameters)),
      )
    )
    start += share_codec.num_words
    for bucket in share_codec.buckets:
      indices = tuple(parameters[index] for index in bucket.indices)
      # A separate random stream per bucket, so that no two servers' variables
      # draw the same bits.
      buckets.append(bucket._replace(indices=indices, stream=len(buckets)))
  return gradients.GradientCodec(tuple(buckets)), shares
