"""Scores of single examples, by TensorFlow."""

import tensorflow as tf


def is_in_top(count: int, labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
  """Whether each label is among the `count` largest logits, bool [b].

  Args:
    count: >= 1; more than there are classes counts as all.
    labels: int32 [b].
    logits: float32 [b, classes].
  """
  return tf.math.in_top_k(labels, logits, min(count, logits.shape[-1]))


def cross_entropy(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
  """The cross entropy of each example, float32 [b]; see `is_in_top`."""
  return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
