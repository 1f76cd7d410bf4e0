"""A node's pass forward and backward, as pure functions of a model's values."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from terngrad.codec.stages import random_bits


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

  def __call__(self, outputs, labels):
    """See `cross_entropy`."""
    return cross_entropy(self, outputs, labels)


PLAIN = Loss()

# What a pass says of its examples.
NUM_SCORES = 2


class Pass(NamedTuple):
  """A model's loss as pure functions.

  Attributes:
    gradients: takes (parameters, held, images, labels, key, scale), lists of
      tensors, a node's batch, its uint32 [2] key and the float32 [] that the
      loss is multiplied with before it is differentiated and its gradients
      are divided by, None or left out for 1; returns (list of gradients,
      scores float32 [`NUM_SCORES`]: loss, and top-1 accuracy as a share; list
      of new statistics). `held` are the moving statistics and then the frozen
      parameters. A pass that remembers something, see `local_steps`,
      takes that too, as `memory`, a list of tensors, and returns it last.
    decay: takes the parameters, None in place of those that are not asked
      for; returns the gradients of those of their L2 terms that belong in the
      compressed gradient, None where a parameter has none.
    decoupled_decay: the same for those that the update applies by itself; None
      where it applies none.
    regularization: takes the parameters, returns the sum of their L2 terms,
      float32 [].
    num_statistics: how many of `held` are moving statistics.
  """

  gradients: Callable
  decay: Callable
  decoupled_decay: Callable | None
  regularization: Callable
  num_statistics: int


def model_pass(
  model, plan, loss=PLAIN, decoupled=False, differentiate=None, weight=None
):
  """The pass of a Keras classifier, by `model.stateless_call`.

  Args:
    model: maps images to logits [b, classes], or to a list of them and the
      logits of auxiliary heads.
    plan: its `replicas.ModelVariables`.
    loss: `Loss`, or another function of (the model's outputs, labels int32 [b])
      that returns the mean over the b examples, float32 [].
    decoupled: True leaves the L2 terms out of the compressed gradient, for the
      update to apply.
    differentiate: takes (parameters, non-trainable values of the model, images,
      losses), where `losses` takes the model's outputs and returns (what is
      differentiated float32 [], the scores of a `Pass`); returns (list of
      gradients, scores, list of new non-trainable values). None for one tape
      over the model, which keeps all activations.
    weight: takes a node's labels, returns float32 [], what its loss and scores
      are multiplied with, so that means over nodes of unequal shares are those
      of all examples. None for 1.

  Returns:
    A `Pass`. L2 terms are those of the variables' own regularizers.
  """
  regularization = functools.partial(_regularization, plan.trainable)
  decay = functools.partial(_decay, regularization)
  return Pass(
    gradients=functools.partial(
      _gradients,
      differentiate or functools.partial(_differentiate, model),
      plan,
      functools.partial(_scores, loss, weight),
    ),
    decay=no_decay if decoupled else decay,
    decoupled_decay=decay if decoupled else None,
    regularization=regularization,
    num_statistics=len(plan.statistics),
  )


def _gradients(
  differentiate, plan, score, parameters, held, images, labels, key, scale=None
):
  def losses(outputs):
    scores = score(outputs, labels)
    return scores[0] if scale is None else scores[0] * scale, tf.stack(scores)

  result, scores, state = differentiate(
    parameters, with_seeds(plan, held, key), images, losses
  )
  if scale is not None:
    result = [gradient / scale for gradient in result]
  by_index = dict(zip(plan.indices, state, strict=True))
  return result, scores, [by_index[i] for i in range(len(plan.statistics))]


def _scores(loss, weight, outputs, labels):
  entropy = loss(outputs, labels)
  right = tf.cast(is_right(outputs, labels), tf.float32)
  scores = [entropy, tf.reduce_mean(right)]
  return scores if weight is None else [s * weight(labels) for s in scores]


def _differentiate(model, parameters, state, images, losses):
  with tf.GradientTape(watch_accessed_variables=False) as tape:
    tape.watch(parameters)
    outputs, state = model.stateless_call(
      parameters, state, images, training=True
    )
    target, scores = losses(outputs)
  # A parameter that the loss does not reach has a gradient of zeros.
  result = tape.gradient(
    target, parameters, unconnected_gradients=tf.UnconnectedGradients.ZERO
  )
  return result, scores, state


def is_right(outputs, labels):
  """Whether each label has the largest logit.

  Args:
    outputs: of a model, logits [b, classes] or a list of them and others.
    labels: int32 [b].

  Returns:
    bool [b].
  """
  logits = outputs[0] if isinstance(outputs, list) else outputs
  return tf.math.in_top_k(labels, tf.cast(logits, tf.float32), 1)


def _regularization(variables, parameters):
  terms = [
    variable.regularizer(parameter)
    for variable, parameter in zip(variables, parameters, strict=True)
    if variable.regularizer is not None and parameter is not None
  ]
  return tf.add_n([tf.constant(0.0), *terms])


def _decay(regularization, parameters):
  asked = [p for p in parameters if p is not None]
  with tf.GradientTape(watch_accessed_variables=False) as tape:
    tape.watch(asked)
    loss = regularization(parameters)
  found = iter(tape.gradient(loss, asked))
  return [p if p is None else next(found) for p in parameters]


def no_decay(parameters):
  """`Pass.decay` where L2 terms act elsewhere."""
  return [None] * len(parameters)


def with_seeds(plan, held, key):
  """The model's non-trainable values, with a dropout seed a layer from `key`.

  Layers fold in negative numbers; the codes fold in the index of a bucket.
  """
  return [
    random_bits.fold_in(key, tf.constant(-1 - i))
    if index is None
    else held[index]
    for i, index in enumerate(plan.indices)
  ]


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


def cross_entropy(loss, outputs, labels):
  """The mean softmax cross entropy, of all heads with their factors.

  Args:
    loss: `Loss`.
    outputs: logits [b, classes], or the list of them and those of auxiliary
      heads.
    labels: int32 [b].

  Returns:
    float32 [].
  """
  heads = outputs if isinstance(outputs, list) else [outputs]
  smoothing = loss.label_smoothing
  total, *others = [_mean_entropy(head, labels, smoothing) for head in heads]
  for other in others:
    total += loss.aux_weight * other
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
