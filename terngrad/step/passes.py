"""A worker's forward and backward pass, a pure function of model values."""

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
from terngrad.exchange import protocol
from terngrad.reduce import weight_decay
from terngrad.step import model_variables

if TYPE_CHECKING:
  from slim.nets import factory
  from terngrad.step import device_passes

# Outputs of a model: logits [b, classes], or a list of them and the logits of
# the auxiliary heads.
Outputs: TypeAlias = tf.Tensor | list[tf.Tensor]


class Loss(NamedTuple):
  """Softmax cross entropy with label smoothing and auxiliary heads.

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
    """Computes the mean cross entropy, summed over the heads with weights.

    Args:
      outputs: logits [b, classes], or the list of them and those of auxiliary
        heads; of language models [b, T, classes].
      labels: int32 [b], or [b, T].

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
# Scores of a pass: mean loss and top-1 accuracy.
NUM_SCORES = 2


@dataclasses.dataclass(eq=False)
class Pass(abc.ABC):
  """The forward and backward pass of a model as a pure function.

  Attributes:
    num_statistics: how many of `non_trainable` are moving statistics.
    decay: L2 terms that are part of the compressed gradient; None for none.
    decoupled_decay: L2 terms that the update applies (decoupled weight decay);
      None for none.
  """

  num_statistics: int
  decay: weight_decay.WeightDecay | None = None
  decoupled_decay: weight_decay.WeightDecay | None = None

  def without_decay(self) -> 'Pass':
    """Copies the pass without L2 terms in the compressed gradient."""
    made = copy.copy(self)
    made.decay = None
    return made

  def uncompiled(self) -> 'Pass':
    """Returns the pass for a program that XLA compiles as a whole."""
    return self

  @abc.abstractmethod
  def gradients(
    self,
    parameters: list[tf.Tensor],
    non_trainable: list[tf.Tensor],
    images: tf.Tensor,
    labels: tf.Tensor,
    key: tf.Tensor,
    scale: tf.Tensor | None = None,
  ) -> tuple[Any, ...]:
    """Computes the gradients of the loss of a worker's batch.

    A pass with states, such as `local_steps`, also takes them, as `memory`, a
    list of tensors, and returns the new ones last.

    Args:
      parameters: float32, the values of the trainable variables.
      non_trainable: the moving statistics, then the frozen parameters.
      images: [b, ...], of the worker.
      labels: int32 [b], of the worker.
      key: uint32 [2], random key of the worker.
      scale: float32 [], the loss scale: the loss is multiplied by it before the
        backward pass, and the gradients are divided by it. None for 1.

    Returns:
      (gradients, scores, new statistics). The scores are float32
      [`NUM_SCORES`]: the loss, and the top-1 accuracy in [0, 1].
    """

  def compute_during_exchange(
    self,
    devices: 'device_passes.DevicePasses',
    batch: protocol.DeviceExamples,
    seed: tf.Tensor,
    step: tf.Tensor,
  ) -> None:
    """Computes during the exchange; only `local_steps` overrides this.

    Args:
      devices: the device and its workers.
      batch: the examples of these workers.
      seed: int64 [], of the run.
      step: int64 [], number of steps taken before.
    """
    del devices, batch, seed, step


class WrappedPass(Pass):
  """A pass around another one, with the same statistics and L2 terms."""

  def __init__(self, node_pass: Pass) -> None:
    """Stores the inner pass."""
    super().__init__(
      node_pass.num_statistics, node_pass.decay, node_pass.decoupled_decay
    )
    self._node_pass = node_pass


class ModelPass(Pass):
  """The pass of a Keras classifier, with `model.stateless_call`.

  A single gradient tape holds all activations of the model.

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
    """Prepares the L2 terms, which the variables' regularizers define.

    Args:
      model: maps images to `Outputs`.
      plan: the variables of the model.
      loss: the mean loss of a batch.
      decoupled: True leaves the L2 terms out of the compressed gradient; the
        update applies them.
      mean_share: mean number of examples per worker. The loss and scores of a
        worker with b examples are multiplied by b / mean_share, so that the
        mean over workers is the mean over all examples. None if all workers
        have equally many.
    """
    decay = weight_decay.WeightDecay.of(plan.trainable)
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
    non_trainable: list[tf.Tensor],
    images: tf.Tensor,
    labels: tf.Tensor,
    key: tf.Tensor,
    scale: tf.Tensor | None = None,
  ) -> tuple[list[tf.Tensor], tf.Tensor, list[tf.Tensor]]:
    """Computes the gradients of the loss; see `Pass.gradients`."""
    plan = self._plan

    def losses(
      outputs: Outputs, added: list[tf.Tensor]
    ) -> tuple[tf.Tensor, tf.Tensor]:
      scores = self._scores(outputs, labels, added)
      return scores[0] if scale is None else scores[0] * scale, tf.stack(scores)

    result, scores, state = self.differentiate(
      parameters, with_seeds(plan, non_trainable, key), images, losses
    )
    # Rows of an embedding's gradient have no static shape as a tensor.
    result = [
      tf.ensure_shape(tf.convert_to_tensor(each), parameter.shape)
      if isinstance(each, tf.IndexedSlices)
      else each
      for each, parameter in zip(result, parameters, strict=True)
    ]
    if scale is not None:
      result = [gradient / scale for gradient in result]
    by_index = dict(zip(plan.indices, state, strict=True))
    return result, scores, [by_index[i] for i in range(len(plan.statistics))]

  def differentiate(
    self,
    parameters: list[tf.Tensor],
    state: list[tf.Tensor],
    images: tf.Tensor,
    losses: Callable[[Outputs, list[tf.Tensor]], tuple[tf.Tensor, tf.Tensor]],
  ) -> tuple[list[tf.Tensor], tf.Tensor, list[tf.Tensor]]:
    """Runs the model and differentiates a loss by the parameters.

    Args:
      parameters: float32, the values of the trainable variables.
      state: values of `model.non_trainable_variables`.
      images: [b, ...], of the worker.
      losses: takes the model's outputs and the losses that its layers add;
        returns the loss to differentiate, float32 [], and the scores.

    Returns:
      (gradients, of embeddings as `tf.IndexedSlices`; scores; new values of
      `model.non_trainable_variables`).
    """
    with tf.GradientTape(watch_accessed_variables=False) as tape:
      tape.watch(parameters)
      outputs, state, found = self.model.stateless_call(
        parameters, state, images, training=True, return_losses=True
      )
      target, scores = losses(outputs, added_losses(self.model, found))
    # The gradient of a parameter that does not affect the loss is zero.
    result = tape.gradient(
      target, parameters, unconnected_gradients=tf.UnconnectedGradients.ZERO
    )
    return result, scores, state

  def _scores(
    self, outputs: Outputs, labels: tf.Tensor, added: list[tf.Tensor]
  ) -> list[tf.Tensor]:
    entropy = self._loss(outputs, labels)
    for each in added:
      entropy += tf.cast(each, tf.float32)
    correct = tf.cast(is_correct(outputs, labels), tf.float32)
    scores = [entropy, tf.reduce_mean(correct)]
    if self._mean_share is None:
      return scores
    return [
      score * (tf.cast(tf.shape(labels)[0], tf.float32) / self._mean_share)
      for score in scores
    ]


def added_losses(
  model: keras.Model, losses: list[tf.Tensor]
) -> list[tf.Tensor]:
  """Returns the losses of a call that regularizers of variables do not add.

  These are activity regularizers' and those of `Layer.add_loss`. The terms of
  variables come last in `Model.losses`; `WeightDecay` has them.

  Args:
    model: the model that was called.
    losses: of `stateless_call` with `return_losses`.
  """
  of_variables = sum(
    variable.regularizer is not None for variable in model.trainable_variables
  )
  return losses[: len(losses) - of_variables]


def is_in_top(
  labels: tf.Tensor, logits: tf.Tensor, count: int = 1
) -> tf.Tensor:
  """Checks for each label whether it is among the `count` largest logits.

  The first of equal logits counts as the largest, as for argmax, so equal
  logits predict one class only. Logits that are not finite predict none.

  Args:
    labels: int32 [b].
    logits: float32 [b, classes].
    count: from 1 to the number of classes.

  Returns:
    bool [b].
  """
  # int64, because a GPU's step compares int32 on the host.
  if count == 1:
    predicted = tf.argmax(logits, axis=1)[:, None]  # Faster than top_k.
  else:
    predicted = tf.cast(tf.math.top_k(logits, count).indices, tf.int64)
  found = tf.equal(predicted, tf.cast(labels, tf.int64)[:, None])
  return tf.math.in_top_k(labels, logits, count) & tf.reduce_any(found, axis=1)


def is_correct(outputs: Outputs, labels: tf.Tensor) -> tf.Tensor:
  """Checks for each example whether its label has the largest logit.

  Args:
    outputs: of a model; logits of auxiliary heads are ignored.
    labels: int32 [b]; of language models [b, T].

  Returns:
    bool [b], or [b * T].
  """
  logits = outputs[0] if isinstance(outputs, list) else outputs
  if logits.shape.rank == 3:
    logits = tf.reshape(logits, [-1, logits.shape[-1]])
    labels = tf.reshape(labels, [-1])
  return is_in_top(labels, tf.cast(logits, tf.float32))


def with_seeds(
  plan: model_variables.ModelVariables,
  non_trainable: list[tf.Tensor],
  key: tf.Tensor,
) -> list[tf.Tensor]:
  """Collects the model's non-trainable values, with dropout seeds from `key`.

  The i-th non-trainable variable, if it is a seed, gets `key` with -1 - i
  folded in. Codes fold in the index of a bucket, >= 0, so no key is used twice.

  Args:
    plan: the variables of the model.
    non_trainable: the moving statistics, then the frozen parameters.
    key: uint32 [2], random key of the worker.

  Returns:
    Values in the order of `model.non_trainable_variables`.
  """
  return [
    random_bits.fold_in(key, tf.constant(-1 - i))
    if index is None
    else non_trainable[index]
    for i, index in enumerate(plan.indices)
  ]


def net_loss(
  net: 'factory.Net', label_smoothing: float = -1.0, aux_weight: float = -1.0
) -> Loss:
  """Makes the `Loss` of a net; -1 takes the default of the net."""
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
  # As on GPUs without smoothing; the step is then refused.
  is_class = (labels >= 0) & (labels < classes)
  return tf.reduce_mean(tf.where(is_class, losses, float('nan')))
