"""Loss and accuracy of a training step and of a whole data set."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from typing import NamedTuple
from typing import TypeAlias

import keras
import numpy as np
import tensorflow as tf

from slim.nets import factory as nets
from terngrad import aliases
from terngrad.codec.stages import tracing
from terngrad.exchange import group as groups
from terngrad.step import model_variables
from terngrad.step import passes
from terngrad.step import replicas as replicas_lib

# For each replica images [b, ...] and labels int32 [b], or None.
Batches: TypeAlias = Sequence[tuple[tf.Tensor, tf.Tensor] | None]


class Result(NamedTuple):
  """Figures of one step, or their means over several steps.

  Attributes:
    loss: mean over the devices.
    accuracy: over the examples of all devices, before the update, in [0, 1].
    num_examples: examples of all devices.
    bits_per_element: bits that a worker sent per gradient element.
  """

  loss: float
  accuracy: float
  num_examples: int
  bits_per_element: float

  @classmethod
  def of_all(cls, results: Iterable['Result']) -> 'Result':
    """Deprecated: use average."""
    aliases.warn('Result', 'of_all', 'average')
    return cls.average(results)

  @classmethod
  def average(cls, results: Iterable['Result']) -> 'Result':
    """Averages several results and sums their examples."""
    loss, accuracy, count, bits = map(np.array, zip(*results, strict=True))
    return cls(
      float(loss.mean()),
      float(accuracy.mean()),
      int(count.sum()),
      float(bits.mean()),
    )


class Score(NamedTuple):
  """Loss and accuracy on all examples of an input.

  Attributes:
    loss: mean over the examples.
    accuracy: fraction of examples whose label has the largest logit, in [0, 1].
    num_examples: number of examples.
  """

  loss: float
  accuracy: float
  num_examples: int


def count_correct(outputs: passes.Outputs, labels: tf.Tensor) -> tf.Tensor:
  """Counts the labels that have the largest logit.

  Args:
    outputs: logits [b, classes], or a list that begins with them.
    labels: int32 [b].

  Returns:
    float64 [].

  Raises:
    ValueError: the outputs do not begin with logits of that shape.
  """
  _check_logits(outputs)
  right = passes.is_correct(outputs, labels)
  return tf.reduce_sum(tf.cast(right, tf.float64))


def _check_logits(outputs: passes.Outputs) -> None:
  """Raises ValueError if the outputs do not begin with logits."""
  logits = nets.select_logits(outputs)
  if not tf.is_tensor(logits) or logits.shape.rank != 2:
    shape = list(getattr(logits, 'shape', ()))
    raise ValueError(
      'model_fn: expected a model from images to logits [b, classes], received '
      f'one whose outputs are {type(logits).__name__} {shape}. End it with a '
      'dense layer of one unit per class.'
    )


def loss_function(loss: passes.LossFunction | None) -> passes.LossFunction:
  """Returns the function to minimize.

  Args:
    loss: a function from (the model's outputs, labels int32 [b]) to the mean
      over the b examples, a float []. None: cross entropy.

  Returns:
    A function from (outputs, labels) to float32 [], which raises ValueError if
    `loss` returns another shape.
  """
  if loss is None or isinstance(loss, passes.Loss):
    return loss or passes.PLAIN
  # It may have `if` and `for` on tensors.
  converted = tracing.rewritten(loss)

  def minimized(outputs: passes.Outputs, labels: tf.Tensor) -> tf.Tensor:
    value = tf.cast(converted(outputs, labels), tf.float32)
    if value.shape.rank not in (None, 0):
      raise ValueError(
        'loss: expected one number, the mean over the examples, received a '
        f'tensor of shape {list(value.shape)}. Take tf.reduce_mean of it.'
      )
    return value

  return minimized


def require_logits(minimized: passes.LossFunction) -> passes.LossFunction:
  """Wraps a loss so that it refuses outputs that do not begin with logits."""

  def loss(outputs: passes.Outputs, labels: tf.Tensor) -> tf.Tensor:
    _check_logits(outputs)
    return minimized(outputs, labels)

  return loss


def make_scorer(
  model: keras.Model,
  plan: model_variables.ModelVariables,
  replicas: Sequence[replicas_lib.Replica],
  minimized: passes.LossFunction,
) -> Callable[[Batches], tf.Tensor]:
  """Creates the traced function that evaluates one batch per device.

  Returns:
    A `tf.function` of batches, not all None, that returns float64 [3]: the sum
    of the losses of all examples, the number of correct predictions, the number
    of examples.
  """

  def score_device(
    replica: replicas_lib.Replica, images: tf.Tensor, labels: tf.Tensor
  ) -> tf.Tensor:
    with tf.device(replica.device):
      outputs = outputs_of(model, plan, replica, images)
      count = tf.cast(tf.size(labels), tf.float64)
      loss = tf.cast(minimized(outputs, labels), tf.float64)
      return tf.stack([count * loss, count_correct(outputs, labels), count])

  @tracing.function(reduce_retracing=True)
  def score(batches: Batches) -> tf.Tensor:
    return tf.add_n(
      [
        score_device(replica, *batch)
        for replica, batch in zip(replicas, batches, strict=True)
        if batch is not None
      ]
    )

  return score


def outputs_of(
  model: keras.Model,
  plan: model_variables.ModelVariables,
  replica: replicas_lib.Replica,
  images: tf.Tensor,
) -> passes.Outputs:
  """Computes a replica's outputs without dropout."""
  parameters = [tf.convert_to_tensor(v) for v in replica.trainable]
  state_variables = [
    tf.convert_to_tensor(v) for v in (*replica.statistics, *replica.frozen)
  ]
  # The seeds are not used without dropout.
  state = passes.with_seeds(plan, state_variables, tf.zeros([2], tf.uint32))
  return model.stateless_call(parameters, state, images, training=False)[0]


def mean_score(sums: np.ndarray, group: groups.Group | None) -> Score:
  """Combines the sums of all processes to a `Score`.

  Args:
    sums: float64 [3], see `make_scorer`.
    group: the group of processes; None for one process.

  Raises:
    ValueError: there are no examples.
  """
  if group is not None:
    # Sent as int32 words, so that counts stay exact.
    gathered = group.all_gather_now(sums.view(np.int32)[np.newaxis])
    sums = gathered.view(np.float64).sum(axis=0)
  loss, right, count = (float(number) for number in sums)
  if not count:
    raise ValueError(
      'input_fn: expected at least one example, received none on any device. '
      'Check what input_fn reads.'
    )
  return Score(loss / count, right / count, int(count))
