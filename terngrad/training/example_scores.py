"""Scores of single examples, computed by TensorFlow.

The score of a sequence is the mean over its tokens.
"""

import functools
from collections.abc import Callable

import tensorflow as tf

from terngrad.step import passes

_Score = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


def is_in_top(count: int, labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
  """Tests whether each label is among the `count` largest logits.

  Args:
    count: >= 1; a number above that of the classes means all classes.
    labels: int32 [b] or [b, T].
    logits: float32 [b, classes] or [b, T, classes].

  Returns:
    bool [b], or the fraction of the tokens, float32 [b].
  """
  found = functools.partial(
    passes.is_in_top, count=min(count, logits.shape[-1])
  )
  return _of_examples(found, labels, logits)


def cross_entropy(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
  """Computes the cross entropy of each example, float32 [b].

  Args:
    labels: int32 [b] or [b, T].
    logits: float32 [b, classes] or [b, T, classes].
  """
  return _of_examples(
    tf.nn.sparse_softmax_cross_entropy_with_logits, labels, logits
  )


def _of_examples(
  score: _Score, labels: tf.Tensor, logits: tf.Tensor
) -> tf.Tensor:
  """Scores examples, or all tokens and returns each example's mean."""
  if logits.shape.rank == 2:
    return score(labels, logits)
  flat = score(
    tf.reshape(labels, [-1]), tf.reshape(logits, [-1, logits.shape[-1]])
  )
  by_example = tf.reshape(tf.cast(flat, tf.float32), tf.shape(labels))
  return tf.reduce_mean(by_example, axis=1)
