"""Divides a batch over the workers, equally or in proportion to weights.

With unequal shares, the mean over the workers equals the mean over all examples
if each worker's value is multiplied by its share divided by the mean share.
"""

import functools
import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf


def divide(batch_size: int, weights: Sequence[float]) -> tuple[int, ...]:
  """Divides a batch in proportion to weights (largest remainder method).

  Args:
    batch_size: number of examples, at least one per weight.
    weights: positive numbers, one per worker.

  Returns:
    Examples of each worker, each >= 1, with the sum `batch_size`. Of equal
    remainders the first worker's is rounded up.

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


def worker_weights(
  weights: Sequence[float], num_workers: int, num_devices: int
) -> list[float]:
  """Computes the weights of workers from the weights of their devices.

  Args:
    weights: positive numbers, one per device, process by process.
    num_workers: workers of all processes, the same number in each; worker w of
      a process is on its device w mod M.
    num_devices: M, devices per process.

  Returns:
    Positive numbers, one per worker: the workers of a device share its weight
    equally.

  Examples:
    >>> worker_weights([1.0, 0.5], 3, 2)
    [0.5, 0.5, 0.5]
  """
  per_process = num_workers * num_devices // len(weights)
  devices = [
    w // per_process * num_devices + w % per_process % num_devices
    for w in range(num_workers)
  ]
  return [weights[device] / devices.count(device) for device in devices]


def split_batch(
  shares: Sequence[int], images: tf.Tensor, labels: tf.Tensor
) -> tuple[tf.Tensor | tf.RaggedTensor, tf.Tensor | tf.RaggedTensor]:
  """Splits a batch into consecutive examples of each worker.

  Args:
    shares: number of examples of each worker.
    images: [b, ...], b the sum of the shares.
    labels: [b, ...].

  Returns:
    (images [workers, share, ...], labels [workers, share, ...]);
    `tf.RaggedTensor` if the shares differ.
  """
  if len(set(shares)) > 1:
    ragged = functools.partial(tf.RaggedTensor.from_row_lengths, validate=False)
    lengths = tf.constant(shares, tf.int64)
    return ragged(images, lengths), ragged(labels, lengths)
  workers, share = len(shares), shares[0]
  return (
    tf.reshape(images, [workers, share, *images.shape[1:]]),
    tf.reshape(labels, [workers, share, *labels.shape[1:]]),
  )
