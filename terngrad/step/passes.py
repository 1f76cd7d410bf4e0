"""A node's pass forward and backward, as pure functions of a model's values."""

import abc
import copy
import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING
from typing import Any
from typing import NamedTuple
from typing import TypeAlias

import keras
import tensorflow as tf

from terngrad.codec.stages import random_bits
from terngrad.exchange import towers
from terngrad.reduce import programs
from terngrad.step import model_variables

if TYPE_CHECKING:
  from slim.nets import factory
  from terngrad.step import device_passes

# What a model returns: logits [b, classes], or a list of them and the logits of
# auxiliary heads.
Outputs: TypeAlias = tf.Tensor | list[tf.Tensor]


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

  def __call__(self, outputs: Outputs, labels: tf.Tensor) -> tf.Tensor:
    """The mean softmax cross entropy, of all heads with their factors.

    Args:
      outputs: logits [b, classes], or the list of them and those of auxiliary
        heads.
      labels: int32 [b].

    Returns:
      float32 [].
    """
    heads = outputs if isinstance(outputs, list) else [outputs]
    total, *others = [
      _mean_entropy(head, labels, self.label_smoothing) for head in heads
    ]
    for other in others:
      total += self.aux_weight * other
    return total


PLAIN = Loss()

# Takes outputs and labels int32 [b]; returns the mean over the b examples,
# float32 [].
LossFunction: TypeAlias = Loss | Callable[[Outputs, tf.Tensor], tf.Tensor]
# What a pass says of its examples.
NUM_SCORES = 2


@dataclasses.dataclass(eq=False)
class Pass(abc.ABC):
  """A model's loss as pure functions.

  Attributes:
    num_statistics: how many of `held` are moving statistics.
    decay: the L2 terms that belong in the compressed gradient; None for none.
    decoupled_decay: those that the update applies by itself; None for none.
  """

  num_statistics: int
  decay: programs.WeightDecay | None = None
  decoupled_decay: programs.WeightDecay | None = None

  def without_decay(self) -> 'Pass':
    """The same pass, whose compressed gradient is without L2 terms."""
    made = copy.copy(self)
    made.decay = None
    return made

  @abc.abstractmethod
  def gradients(
    self,
    parameters: list[tf.Tensor],
    held: list[tf.Tensor],
    images: tf.Tensor,
    labels: tf.Tensor,
    key: tf.Tensor,
    scale: tf.Tensor | None = None,
  ) -> tuple[Any, ...]:
    """Differentiates the loss of a node's batch.

    A pass that remembers something, see `local_steps`, takes that too, as
    `memory`, a list of tensors, and returns it last.

    Args:
      parameters: of the model.
      held: the moving statistics and then the frozen parameters.
      images: of the node.
      labels: int32 [b], of the node.
      key: uint32 [2], of the node.
      scale: float32 [], what the loss is multiplied with before it is
        differentiated and its gradients are divided by; None for 1.

    Returns:
      (list of gradients, scores float32 [`NUM_SCORES`]: loss, and top-1
      accuracy as a share; list of new statistics).
    """

  def go_on(
    self,
    where: 'device_passes.DevicePasses',
    batch: towers.Batch,
    seed: tf.Tensor,
    step: tf.Tensor,
  ) -> None:
    """What workers do during the exchange: nothing but for `local_steps`.

    Args:
      where: the device.
      batch: with the examples of its workers.
      seed: int64 [], of the run.
      step: int64 [], steps taken before.
    """
    del where, batch, seed, step


class ModelPass(Pass):
  """The pass of a Keras classifier, by `model.stateless_call`.

  One tape over the model keeps all activations.

  Attributes:
    model: the classifier.
  """

  def __init__(
    self,
    model: keras.Model,
    plan: model_variables.ModelVariables,
    loss: LossFunction = PLAIN,
    decoupled: bool = False,
    mean_share: tf.Variable | float | None = None,
  ) -> None:
    """Prepares the L2 terms, those of the variables' own regularizers.

    Args:
      model: maps images to `Outputs`.
      plan: its variables.
      loss: what is minimized.
      decoupled: True leaves the L2 terms out of the compressed gradient, for
        the update to apply.
      mean_share: examples a node, of all nodes. A node's loss and scores are
        multiplied with its share of examples by it, so that means over nodes of
        unequal shares are those of all examples. None for equal shares.
    """
    decay = programs.WeightDecay(plan.trainable)
    super().__init__(
      len(plan.statistics),
      None if decoupled else decay,
      decay if decoupled else None,
    )
    self.model = model
    self._plan = plan
    self._loss = loss
    self._mean_share = mean_share

  def gradients(
    self,
    parameters: list[tf.Tensor],
    held: list[tf.Tensor],
    images: tf.Tensor,
    labels: tf.Tensor,
    key: tf.Tensor,
    scale: tf.Tensor | None = None,
  ) -> tuple[list[tf.Tensor], tf.Tensor, list[tf.Tensor]]:
    """See `Pass.gradients`."""
    plan = self._plan

    def losses(outputs: Outputs) -> tuple[tf.Tensor, tf.Tensor]:
      scores = self._scores(outputs, labels)
      return scores[0] if scale is None else scores[0] * scale, tf.stack(scores)

    result, scores, state = self.differentiate(
      parameters, with_seeds(plan, held, key), images, losses
    )
    if scale is not None:
      result = [gradient / scale for gradient in result]
    by_index = dict(zip(plan.indices, state, strict=True))
    return result, scores, [by_index[i] for i in range(len(plan.statistics))]

  def differentiate(
    self,
    parameters: list[tf.Tensor],
    state: list[tf.Tensor],
    images: tf.Tensor,
    losses: Callable[[Outputs], tuple[tf.Tensor, tf.Tensor]],
  ) -> tuple[list[tf.Tensor], tf.Tensor, list[tf.Tensor]]:
    """Differentiates a loss by the parameters.

    Args:
      parameters: of the model.
      state: its non-trainable values.
      images: of the node.
      losses: takes the model's outputs; returns what is differentiated, float32
        [], and the scores.

    Returns:
      (list of gradients, scores, list of new non-trainable values).
    """
    with tf.GradientTape(watch_accessed_variables=False) as tape:
      tape.watch(parameters)
      outputs, state = self.model.stateless_call(
        parameters, state, images, training=True
      )
      target, scores = losses(outputs)
    # A parameter that the loss does not reach has a gradient of zeros.
    result = tape.gradient(
      target, parameters, unconnected_gradients=tf.UnconnectedGradients.ZERO
    )
    return result, scores, state

  def _scores(self, outputs: Outputs, labels: tf.Tensor) -> list[tf.Tensor]:
    entropy = self._loss(outputs, labels)
    right = tf.cast(is_right(outputs, labels), tf.float32)
    scores = [entropy, tf.reduce_mean(right)]
    if self._mean_share is None:
      return scores
    return [
      score * (tf.cast(tf.shape(labels)[0], tf.float32) / self._mean_share)
      for score in scores
    ]


def is_right(outputs: Outputs, labels: tf.Tensor) -> tf.Tensor:
  """Whether each label has the largest logit.

  Args:
    outputs: of a model.
    labels: int32 [b].

  Returns:
    bool [b].
  """
  logits = outputs[0] if isinstance(outputs, list) else outputs
  return tf.math.in_top_k(labels, tf.cast(logits, tf.float32), 1)


def with_seeds(
  plan: model_variables.ModelVariables, held: list[tf.Tensor], key: tf.Tensor
) -> list[tf.Tensor]:
  """The model's non-trainable values, with a dropout seed a layer from `key`.

  Layers fold in negative numbers; the codes fold in the index of a bucket.
  """
  return [
    random_bits.fold_in(key, tf.constant(-1 - i))
    if index is None
    else held[index]
    for i, index in enumerate(plan.indices)
  ]


def of_net(
  net: 'factory.Net', label_smoothing: float = -1.0, aux_weight: float = -1.0
) -> Loss:
  """The `Loss` of a net, with its own numbers where these are -1."""
  return Loss(
    net.label_smoothing if label_smoothing == -1 else label_smoothing,
    net.auxiliary_weight if aux_weight == -1 else aux_weight,
  )


def _mean_entropy(
  logits: tf.Tensor, labels: tf.Tensor, smoothing: float
) -> tf.Tensor:
  logits = tf.cast(logits, tf.float32)
  if smoothing == 0:
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    return tf.reduce_mean(losses)
  classes = logits.shape[-1]
  spread = smoothing / classes
  targets = tf.one_hot(labels, classes, 1.0 - smoothing + spread, spread)
  losses = tf.nn.softmax_cross_entropy_with_logits(targets, logits)
  return tf.reduce_mean(losses)
