"""The division of a batch among the workers: equal, or as weights say.

A mean over the workers of what their examples say is the mean over all examples
where each worker's number is multiplied with its share by the mean share.
"""

import functools
import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf


def divide(batch_size: int, weights: Sequence[float]) -> tuple[int, ...]:
  """Whole shares in proportion to weights, by their largest remainders.

  Args:
    batch_size: examples, one for each weight at least.
    weights: positive numbers, one a worker.

  Returns:
    One a worker, each 1 or more, whose sum is `batch_size`. Of
    equal remainders the first worker's counts.

  Examples:
    >>> divide(4, [1, 1, 1])
    (2, 1, 1)
    >>> divide(32, [1, 0.25, 0.25, 0.001])
    (21, 5, 5, 1)
  """
  total = math.fsum(weights)
  exact = [batch_size * weight / total for weight in weights]
  shares = [max(1, math.floor(share)) for share in exact]
  while sum(shares) < batch_size:
    shares[np.argmax(np.subtract(exact, shares))] += 1
  while sum(shares) > batch_size:
    over = np.where(np.greater(shares, 1), np.subtract(shares, exact), -np.inf)
    shares[np.argmax(over)] -= 1
  return tuple(shares)


def of_workers(
  weights: Sequence[float], num_workers: int, num_devices: int
) -> list[float]:
  """The weights of workers, by those of the devices that they are spread over.

  Args:
    weights: positive numbers, one a device, process by process.
    num_workers: as many in each process; worker w of a process is on its device
      w mod M.
    num_devices: M, those of a process.

  Returns:
    Positive numbers, one a worker: a device's weight is that of all its
    workers together.

  Examples:
    >>> of_workers([1.0, 0.5], 3, 2)
    [0.5, 0.5, 0.5]
  """
  own = num_workers * num_devices // len(weights)
  places = [
    w // own * num_devices + w % own % num_devices for w in range(num_workers)
  ]
  return [weights[place] / places.count(place) for place in places]


def deal(
  shares: Sequence[int], images: tf.Tensor, labels: tf.Tensor
) -> tuple[tf.Tensor | tf.RaggedTensor, tf.Tensor | tf.RaggedTensor]:
  """Deals examples to workers, who get consecutive ones.

  Args:
    shares: one a worker.
    images: [b, ...], b the sum of the shares.
    labels: [b].

  Returns:
    (images [workers, share, ...], labels [workers, share]); as
    `tf.RaggedTensor` where shares differ.
  """
  if len(set(shares)) > 1:
    ragged = functools.partial(tf.RaggedTensor.from_row_lengths, validate=False)
    lengths = tf.constant(shares, tf.int64)
    return ragged(images, lengths), ragged(labels, lengths)
  workers, share = len(shares), shares[0]
  return (
    tf.reshape(images, [workers, share, *images.shape[1:]]),
    tf.reshape(labels, [workers, share]),
  )
