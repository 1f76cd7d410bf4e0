"""Replicas: one copy of a model's state on each device, equal to the bit."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from terngrad.training import errors


class Replica(NamedTuple):
  """The state of training on one device.

  Attributes:
    device: its name.
    trainable: tuple of float32 variables, the parameters.
    statistics: tuple of float32 variables, the model's own moving statistics
      (batch normalisation's).
    slots: tuple of dict of slot name to variable, one dict a parameter.
    averages: tuple of variables, the moving averages of the parameters and
      then of the statistics, as evaluation reads them.
  """

  device: str
  trainable: tuple
  statistics: tuple
  slots: tuple
  averages: tuple

  def variables(self):
    """All variables, in a fixed order."""
    slots = [variable for slot in self.slots for variable in slot.values()]
    return [*self.trainable, *self.statistics, *slots, *self.averages]


class Layout(NamedTuple):
  """A model's variables by what training does with them.

  Attributes:
    names: of the parameters and then of the statistics, 'conv1/kernel'.
    trainable: Keras variables, the parameters.
    statistics: Keras variables, float32 moving statistics.
    seeds: indices in `model.non_trainable_variables` of dropout's seeds.
    non_trainable: how many variables `model.non_trainable_variables` has.
  """

  names: tuple
  trainable: tuple
  statistics: tuple
  seeds: tuple
  non_trainable: int


def layout(model):
  """Sorts a Keras model's variables; see `Layout`."""
  others = model.non_trainable_variables
  seeds = tuple(
    i for i, v in enumerate(others) if v.path.endswith('seed_generator_state')
  )
  trainable = tuple(model.trainable_variables)
  statistics = tuple(v for i, v in enumerate(others) if i not in seeds)
  return Layout(
    # Without the model's own name, which is no part of the net.
    names=tuple(
      v.path.removeprefix(f'{model.name}/') for v in (*trainable, *statistics)
    ),
    trainable=trainable,
    statistics=statistics,
    seeds=seeds,
    non_trainable=len(others),
  )


def create(model, optimizer, devices):
  """One replica a device, all equal to the model's present values.

  The first replica uses the model's own variables, so that a machine with one
  device holds the parameters once.

  Args:
    model: a built `keras.Model`.
    optimizer: `optimizers.Optimizer`.
    devices: names, one a replica.

  Returns:
    A tuple of `Replica`.
  """
  plan = layout(model)
  first = _replica(
    devices[0],
    tuple(variable.value for variable in plan.trainable),
    tuple(variable.value for variable in plan.statistics),
    optimizer,
  )
  others = []
  for device in devices[1:]:
    with tf.device(device):
      trainable = tuple(tf.Variable(v) for v in first.trainable)
      statistics = tuple(
        tf.Variable(v, trainable=False) for v in first.statistics
      )
    others.append(_replica(device, trainable, statistics, optimizer))
  return (first, *others)


def _replica(device, trainable, statistics, optimizer):
  with tf.device(device):
    slots = tuple(
      {
        name: tf.Variable(tf.fill(v.shape, start), trainable=False)
        for name, start in optimizer.slots.items()
      }
      for v in trainable
    )
    averages = tuple(
      tf.Variable(v, trainable=False) for v in (*trainable, *statistics)
    )
  return Replica(device, trainable, statistics, slots, averages)


def copy(source, target):
  """Makes `target` equal to `source`, to the bit."""
  for here, there in zip(source.variables(), target.variables(), strict=True):
    there.assign(here)


def check_equal(replicas, names):
  """Proves that all replicas are equal to the bit.

  Args:
    replicas: of one training.
    names: of the variables of a replica, in the order of
      `Replica.variables()`.

  Raises:
    errors.TrainingError: two differ; names the variable and the devices.
  """
  first = replicas[0]
  reference = [_bits(variable) for variable in first.variables()]
  for other in replicas[1:]:
    triples = zip(names, reference, other.variables(), strict=True)
    for name, expected, variable in triples:
      received = _bits(variable)
      if not np.array_equal(expected, received):
        count = np.count_nonzero(expected != received)
        raise errors.TrainingError(
          f'Replicas: expected {name} on {other.device} to equal that on '
          f'{first.device} to the bit, received {count} differing elements. '
          'This is a fault of the program or of the machine: the last '
          'checkpoint is good, continue from it and report this.'
        )


def check_finite(replica, names):
  """Proves that a replica holds neither NaN nor infinity.

  Args:
    replica: `Replica`.
    names: of its variables, in the order of `Replica.variables()`.

  Raises:
    errors.TrainingError: one does; names the variable.
  """
  for name, variable in zip(names, replica.variables(), strict=True):
    if not np.isfinite(variable.numpy()).all():
      raise errors.TrainingError(
        f'Parameters: expected finite numbers, received NaN or infinity in '
        f'{name}. Lower --initial_learning_rate; the last checkpoint is from '
        'before this and the same command continues from it.'
      )


def _bits(variable):
  return variable.numpy().view(np.uint32)


def variable_names(plan, replica):
  """Names of `replica.variables()`, for checkpoints and messages."""
  slots = [
    f'{name}/{slot}'
    for name, named in zip(plan.names, replica.slots, strict=False)
    for slot in named
  ]
  return [*plan.names, *slots, *(average_name(name) for name in plan.names)]


def average_name(name):
  """The name of the moving average of a parameter or statistic."""
  return f'{name}/average'
