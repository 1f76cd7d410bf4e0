"""Scores of single examples, computed by TensorFlow."""

import tensorflow as tf


def is_in_top(count: int, labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
  """Tests whether each label is among the `count` largest logits, bool [b].

  Args:
    count: >= 1; a number above that of the classes means all classes.
    labels: int32 [b].
    logits: float32 [b, classes].
  """
  return tf.math.in_top_k(labels, logits, min(count, logits.shape[-1]))


def cross_entropy(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
  """Computes the cross entropy of each example, float32 [b].

  Args:
    labels: int32 [b].
    logits: float32 [b, classes].
  """
  return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
