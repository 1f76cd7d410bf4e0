"""The loss of a classifier, without the L2 terms."""

from typing import NamedTuple

import tensorflow as tf


class Loss(NamedTuple):
  """What is minimized.

  Attributes:
    label_smoothing: share of each label that is spread evenly over all classes,
      in [0, 1].
    aux_weight: factor of the loss of each auxiliary head, >= 0.

  References:
    Szegedy et al., Rethinking the Inception Architecture for Computer Vision,
    https://arxiv.org/abs/1512.00567, section 7 (label smoothing) and section 4
    (auxiliary classifiers).
  """

  label_smoothing: float = 0.0
  aux_weight: float = 0.0


PLAIN = Loss()


def of_net(net, label_smoothing=-1.0, aux_weight=-1.0):
  """The loss of a net, with its own numbers where these are -1.

  Args:
    net: `slim.nets.factory.Net`.
    label_smoothing: see `Loss`.
    aux_weight: see `Loss`.

  Returns:
    A `Loss`.
  """
  return Loss(
    net.label_smoothing if label_smoothing == -1 else label_smoothing,
    net.auxiliary_weight if aux_weight == -1 else aux_weight,
  )


def entropy(loss, outputs, labels):
  """The mean softmax cross entropy, of all heads with their factors.

  Args:
    loss: `Loss`.
    outputs: logits [b, classes], or the list of them and those of auxiliary
      heads.
    labels: int32 [b].

  Returns:
    float32 [].
  """
  main, *others = outputs if isinstance(outputs, list) else [outputs]
  total = _mean_entropy(main, labels, loss.label_smoothing)
  for other in others:
    total += loss.aux_weight * _mean_entropy(
      other, labels, loss.label_smoothing
    )
  return total


def _mean_entropy(logits, labels, smoothing):
  logits = tf.cast(logits, tf.float32)
  if smoothing == 0:
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    return tf.reduce_mean(losses)
  classes = logits.shape[-1]
  spread = smoothing / classes
  targets = tf.one_hot(labels, classes, 1.0 - smoothing + spread, spread)
  losses = tf.nn.softmax_cross_entropy_with_logits(targets, logits)
  return tf.reduce_mean(losses)
