"""Replicas: bit-identical copies of the training state, one per device."""

import types
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple
from typing import cast

import numpy as np
import tensorflow as tf

from terngrad import errors
from terngrad.cluster import equality
from terngrad.codec import method as methods
from terngrad.reduce import states
from terngrad.step import loss_scaling
from terngrad.step import model_variables
from terngrad.step import optimizers

_Variables = tuple[tf.Variable, ...]


class Replica(NamedTuple):
  """The state of training on one device.

  Attributes:
    device: name of the device.
    trainable: float32, the parameters.
    statistics: float32, the model's moving statistics (batch normalization).
    slots: for each parameter the optimizer's slots, by name.
    averages: float32 moving averages of the parameters, then of the statistics,
      then of the frozen parameters; evaluation reads them. () for none.
    frozen: float32, the parameters that are not trained.
    scaling: the variables of the loss scale, see `loss_scaling`; () without
      loss scaling.
    local_statistics: True if the statistics and their averages may differ
      between replicas (local batch normalization, --bn_statistics=per_device).
    shared: states of gradient methods that are the same on all replicas.
  """

  device: str
  trainable: _Variables
  statistics: _Variables
  slots: tuple[dict[str, tf.Variable], ...]
  averages: _Variables
  frozen: _Variables = ()
  scaling: _Variables = ()
  local_statistics: bool = False
  shared: Mapping[states.Key, tf.Variable] = types.MappingProxyType({})

  def variables(self) -> list[tf.Variable]:
    """Lists all variables, in a fixed order."""
    slots = [variable for slot in self.slots for variable in slot.values()]
    return [
      *self.trainable,
      *self.statistics,
      *self.frozen,
      *slots,
      *self.averages,
      *self.scaling,
      *self.shared.values(),
    ]

  def part(
    self, parameters: Sequence[int], statistics: Sequence[int]
  ) -> 'Replica':
    """Selects some of the variables, with their slots and averages.

    The averages of frozen parameters are left out.

    Args:
      parameters: indices in `trainable`.
      statistics: indices in `statistics`.
    """
    first = len(self.trainable)
    averaged = (*parameters, *(first + index for index in statistics))
    return self._replace(
      trainable=tuple(self.trainable[index] for index in parameters),
      statistics=tuple(self.statistics[index] for index in statistics),
      slots=tuple(self.slots[index] for index in parameters),
      averages=tuple(self.averages[index] for index in averaged)
      if self.averages
      else (),
    )

  def is_local(self) -> list[bool]:
    """For each of `variables()`: True if it may differ between replicas."""
    if not self.local_statistics:
      return [False] * len(self.variables())
    first = len(self.trainable)
    averages = self.averages[first : first + len(self.statistics)]
    local = {id(variable) for variable in (*self.statistics, *averages)}
    return [id(variable) in local for variable in self.variables()]


def create(
  plan: model_variables.ModelVariables,
  optimizer: optimizers.Optimizer,
  devices: Sequence[str],
  scaling: Sequence[float] = (),
  local_statistics: bool = False,
  shared: Mapping[states.Key, methods.State] = types.MappingProxyType({}),
  averaged: bool = True,
) -> tuple[Replica, ...]:
  """Makes one replica per device with the current values of the model.

  The first replica uses the variables of the model, so that a machine with one
  device holds the parameters once.

  Slots and averages are on the device of their variable.

  Args:
    plan: the variables of the model.
    optimizer: defines the slots.
    devices: name of each replica's device.
    scaling: initial values of the loss-scale variables; () for none.
    local_statistics: True if each device has its own moving statistics.
    shared: declarations of the shared states, from `states.shared`.
    averaged: False makes no moving averages.
  """
  kinds = (plan.trainable, plan.statistics, plan.frozen)
  first = [tuple(v.value for v in kind) for kind in kinds]
  made: list[Replica] = []
  for device in devices:
    values = first if not made else [_copies(kind, device) for kind in first]
    trainable, statistics, frozen = values
    made.append(
      Replica(
        device=device,
        trainable=trainable,
        statistics=statistics,
        slots=tuple(make_slots(optimizer, variable) for variable in trainable),
        averages=_copies(averaged * (*trainable, *statistics, *frozen)),
        frozen=frozen,
        scaling=_copies(scaling, device),
        local_statistics=local_statistics,
        shared=states.make_shared_variables(shared, device),
      )
    )
  return tuple(made)


def make_slots(
  optimizer: optimizers.Optimizer, variable: tf.Variable
) -> dict[str, tf.Variable]:
  """Makes the slots of a parameter, on its device."""
  with tf.device(variable.device):
    return {
      name: tf.Variable(tf.fill(variable.shape, start), trainable=False)
      for name, start in optimizer.slots.items()
    }


def _copies(
  values: Iterable[tf.Variable | float], device: str | None = None
) -> _Variables:
  """Copies values to new variables, on `device` or that of each value."""
  made = []
  for value in values:
    # With plain numbers the caller passes a device.
    with tf.device(device or cast(tf.Variable, value).device):
      made.append(tf.Variable(value, trainable=False))
  return tuple(made)


def copy(source: Replica, target: Replica) -> None:
  """Copies all variables of `source` to `target`, bit by bit."""
  for here, there in zip(source.variables(), target.variables(), strict=True):
    there.assign(here)


def check_equal(replicas: Sequence[Replica], names: Sequence[str]) -> None:
  """Checks that all replicas are bit-identical, except local statistics.

  `names` are those of `Replica.variables()`, in the same order.

  Raises:
    errors.TrainingError: two replicas differ; names the variable and the
      devices.
  """
  if len(replicas) == 1:
    return
  shared = [
    index for index, local in enumerate(replicas[0].is_local()) if not local
  ]
  digests = []
  for replica in replicas:
    variables = replica.variables()
    digests.append(
      np.stack([equality.digest(variables[index].numpy()) for index in shared])
    )
  equality.check(
    digests,
    [names[index] for index in shared],
    [replica.device for replica in replicas],
  )


def check_finite(replica: Replica, names: Sequence[str]) -> None:
  """Checks that no variable of a replica has a NaN or infinite element.

  `names` are those of `Replica.variables()`, in the same order.

  Raises:
    errors.TrainingError: a variable has one; names the variable.
  """
  for name, variable in zip(names, replica.variables(), strict=True):
    if not np.isfinite(variable.numpy()).all():
      raise errors.TrainingError(
        f'Parameters: expected finite numbers, received NaN or infinity in '
        f'{name}. Lower --initial_learning_rate and run the same command; it '
        'continues from the last checkpoint, which was saved before this.'
      )


def variable_names(
  plan: model_variables.ModelVariables, replica: Replica
) -> list[str]:
  """Names of `replica.variables()`, as checkpoints and messages use them."""
  slots = [
    f'{name}/{slot}'
    for name, named in zip(plan.names, replica.slots, strict=False)
    for slot in named
  ]
  averaged = plan.names if replica.averages else ()
  return [
    *plan.names,
    *slots,
    *map(average_name, averaged),
    *loss_scaling.NAMES[: len(replica.scaling)],
    *(f'{plan.names[key.variable]}/{key.name}' for key in replica.shared),
  ]


def average_name(name: str) -> str:
  """Makes the name of the moving average of a parameter or statistic."""
  return f'{name}/average'
