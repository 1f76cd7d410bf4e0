"""Loss and accuracy: of the examples of a step, and of all that there are."""

import contextlib
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from slim.nets import factory as nets
from terngrad.step import passes


class Result(NamedTuple):
  """Of a step, or the mean of several.

  Attributes:
    loss: mean over the devices.
    accuracy: of the examples of this process's devices, before the update, in
      [0, 1].
    num_examples: of all devices.
    bits_per_element: that a device sent, of the gradient's elements.
  """

  loss: float
  accuracy: float
  num_examples: int
  bits_per_element: float

  @classmethod
  def of_all(cls, results):
    """The means of several, and the sum of their examples."""
    loss, accuracy, count, bits = map(np.array, zip(*results, strict=True))
    return cls(
      float(loss.mean()),
      float(accuracy.mean()),
      int(count.sum()),
      float(bits.mean()),
    )


class Score(NamedTuple):
  """Of all examples of an input.

  Attributes:
    loss: mean over the examples.
    accuracy: share of the examples whose label has the largest logit, in
      [0, 1].
    num_examples: how many there were.
  """

  loss: float
  accuracy: float
  num_examples: int


def right_guesses(outputs, labels):
  """How many labels have the largest logit.

  Args:
    outputs: of a model, logits [b, classes] or a list of them and others.
    labels: int32 [b].

  Returns:
    float64 [].

  Raises:
    ValueError: there are no logits of that shape.
  """
  logits = nets.logits_of(outputs)
  if not tf.is_tensor(logits) or logits.shape.rank != 2:
    shape = list(getattr(logits, 'shape', ()))
    raise ValueError(
      'model_fn: expected a model from images to logits [b, classes], received '
      f'one whose outputs are {type(logits).__name__} {shape}. End it with a '
      'dense layer of a unit a class.'
    )
  guesses = tf.argmax(logits, axis=-1, output_type=tf.int32)
  return tf.reduce_sum(tf.cast(guesses == labels, tf.float64))


class StepAccuracy:
  """The accuracy of the examples of the last step, a variable a device.

  A step tells of its loss alone. So the function of the loss, which sees the
  outputs, notes what is right among them. The context of a device's pass says
  which device that is.
  """

  def __init__(self, devices):
    """Makes the variables.

    Args:
      devices: names, with a worker each.
    """
    self._shares = []
    for device in devices:
      with tf.device(device):
        self._shares.append(
          tf.Variable(tf.zeros([], tf.float64), trainable=False)
        )
    self._place = None

  @contextlib.contextmanager
  def pass_context(self, device_index):
    """The context of a device's pass; see `step.Training`."""
    self._place = device_index
    yield
    self._place = None

  def noted_by(self, minimized):
    """The function of the loss, which notes the accuracy besides."""

    def loss(outputs, labels):
      count = tf.cast(tf.size(labels), tf.float64)
      share = right_guesses(outputs, labels) / count
      self._shares[self._place].assign(share)
      return minimized(outputs, labels)

    return loss

  def value(self):
    """float, mean over the devices."""
    return float(np.mean([share.numpy() for share in self._shares]))


def make_scorer(model, plan, replicas, minimized):
  """Makes the traced function that scores a batch of each device.

  Args:
    model: a `keras.Model`.
    plan: its `replicas.ModelVariables`.
    replicas: tuple of `replicas.Replica`.
    minimized: a function of (outputs, labels), see `passes.loss_function`.

  Returns:
    A `tf.function` of a list, for each replica (images [b, ...], labels int32
    [b]) or None, not all None, that returns float64 [3]: the sum of the losses
    of all examples, how many guesses are right, how many examples there are.
  """

  def of_device(replica, images, labels):
    with tf.device(replica.device):
      outputs = outputs_of(model, plan, replica, images)
      count = tf.cast(tf.size(labels), tf.float64)
      loss = tf.cast(minimized(outputs, labels), tf.float64)
      return tf.stack([count * loss, right_guesses(outputs, labels), count])

  @tf.function(reduce_retracing=True)
  def score(batches):
    return tf.add_n(
      [
        of_device(replica, *batch)
        for replica, batch in zip(replicas, batches, strict=True)
        if batch is not None
      ]
    )

  return score


def outputs_of(model, plan, replica, images):
  """The model's outputs with the values of a replica."""
  held = [*replica.statistics, *replica.frozen]
  return passes.scored_outputs(
    model,
    plan,
    [tf.convert_to_tensor(variable) for variable in replica.trainable],
    [tf.convert_to_tensor(variable) for variable in held],
    images,
  )


def mean_score(sums, group):
  """The `Score` of all processes.

  Args:
    sums: float64 [3], NumPy, see `make_scorer`.
    group: `exchange.group.Group` or None for one process.

  Raises:
    ValueError: there are no examples.
  """
  if group is not None:
    # What travels is int32; counts stay exact.
    everyone = group.all_gather_now(sums.view(np.int32)[np.newaxis])
    sums = everyone.view(np.float64).sum(axis=0)
  loss, right, count = (float(number) for number in sums)
  if not count:
    raise ValueError(
      'input_fn: expected at least one example, received none on any device. '
      'Look at what the input reads.'
    )
  return Score(loss / count, right / count, int(count))
