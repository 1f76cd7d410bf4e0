"""States of gradient methods and passes, such as error-feedback residuals.

A state belongs to one variable of the model. A SHARED state is the same on all
devices and is a variable of each replica. A WORKER state differs by worker:
here it has one variable for each worker of this process, on the device of the
worker. Passes have only WORKER states.
"""

import functools
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple
from typing import TypeVar

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.exchange import protocol
from terngrad.reduce import buckets
from terngrad.reduce import gradients

_T = TypeVar('_T')


class Key(NamedTuple):
  """Identifies a state: its name and the index of its model variable."""

  name: str
  variable: int


def keys_of(bucket: buckets.Bucket) -> list[Key]:
  """Lists the keys of a bucket's states, in the order of `Bucket.states`."""
  return [Key(s.name, bucket.indices[s.variable]) for s in bucket.states]


def declarations(codec: gradients.GradientCodec) -> dict[Key, methods.State]:
  """Collects the state declarations of a codec of the whole model."""
  return {
    key: state
    for bucket in codec.buckets
    for key, state in zip(keys_of(bucket), bucket.states, strict=True)
  }


def shared(codec: gradients.GradientCodec) -> dict[Key, methods.State]:
  """Collects the declarations of SHARED states, for `replicas.create`."""
  return {
    key: state
    for key, state in declarations(codec).items()
    if state.owner == methods.SHARED
  }


def make_worker_variables(
  declared_states: dict[Key, methods.State], device: str, count: int
) -> dict[Key, list[tf.Variable]]:
  """Makes the variables of the WORKER states for `count` workers of a device.

  They have the initial value of the state's declaration.
  """
  with tf.device(device):
    return {
      key: [
        tf.Variable(state.first_value(), trainable=False) for _ in range(count)
      ]
      for key, state in declared_states.items()
      if state.owner == methods.WORKER
    }


def make_shared_variables(
  shared_states: Mapping[Key, methods.State], device: str
) -> dict[Key, tf.Variable]:
  """Makes the variables of the SHARED states on a device."""
  with tf.device(device):
    return {
      key: tf.Variable(state.first_value(), trainable=False)
      for key, state in shared_states.items()
    }


class NodeStates:
  """States of the workers of one device."""

  def __init__(self, lists: Sequence[Sequence[tf.Variable]]) -> None:
    """Takes for each state its variables, one per worker."""
    self._nodes = list(zip(*lists, strict=True))

  def __bool__(self) -> bool:
    """True if there are states."""
    return bool(self._nodes)

  def read(self, node: tf.Tensor) -> list[tf.Tensor]:
    """Reads a worker's states; `node` is its index on the device, int32 []."""
    found = self._call(node, lambda row: [v.read_value() for v in row])
    return [] if found is None else found

  def write(self, node: tf.Tensor, values: Sequence[tf.Tensor]) -> None:
    """Assigns a worker's states, in the order of `read`."""
    self._call(node, lambda row: _assign(row, values))

  def _call(
    self, node: tf.Tensor, function: Callable[[Sequence[tf.Variable]], _T]
  ) -> _T | None:
    """Calls `act` with a worker's variables; returns None if there are none."""
    if len(self._nodes) < 2:
      return function(self._nodes[0]) if self._nodes else None
    return tf.switch_case(
      node, [functools.partial(function, row) for row in self._nodes]
    )


class DeviceStates(NamedTuple):
  """The states on one device.

  Attributes:
    workers: for each WORKER state one variable per worker of the device.
    shared: for each SHARED state the variable of the device's replica.
  """

  workers: dict[Key, list[tf.Variable]]
  shared: Mapping[Key, tf.Variable]


class PartStates:
  """The states of a part of a model, on one device."""

  def __init__(
    self,
    codec: gradients.GradientCodec,
    variables: Sequence[int],
    states: DeviceStates,
  ) -> None:
    """Selects the variables of the part's states.

    Args:
      codec: of the part.
      variables: for each variable of the part its index in the keys of states.
      states: of the device.
    """
    keys = [
      [Key(name, variables[i]) for name, i in keys_of(bucket)]
      for bucket in codec.buckets
    ]
    # None for the states of workers.
    self._shared = [[states.shared.get(key) for key in row] for row in keys]
    workers = [states.workers.get(key) for row in keys for key in row]
    self._workers = NodeStates(
      [variables for variables in workers if variables]
    )

  def read(self, node: tf.Tensor) -> list[list[tf.Tensor]]:
    """Reads all states that a worker sees, one list per bucket.

    `node`, int32 [], is the index of the worker on the device.
    """
    local = iter(self._workers.read(node))
    return [
      [next(local) if v is None else v.read_value() for v in variables]
      for variables in self._shared
    ]

  def read_shared(self) -> list[list[tf.Tensor | None]]:
    """Reads the shared states, one list per bucket; None for other states."""
    return [
      [None if v is None else v.read_value() for v in variables]
      for variables in self._shared
    ]

  def write(
    self,
    node: tf.Tensor,
    values: Sequence[Sequence[tf.Tensor]],
    apply: tf.Tensor | None = None,
  ) -> None:
    """Assigns the states of a worker; the shared ones are not written.

    Args:
      node: int32 [], index of the worker on the device.
      values: in the order of `read`.
      apply: bool []; False writes nothing. None is True.
    """
    local = [value for v, value in self._pairs(values) if v is None]
    if local:
      _write_if(apply, lambda: self._workers.write(node, local))

  def write_shared(
    self,
    values: Sequence[Sequence[tf.Tensor | None]],
    apply: tf.Tensor | None = None,
  ) -> None:
    """Assigns the shared states, in the order of `read_shared`.

    Args:
      values: from `GradientCodec.decode`; None for other states.
      apply: bool []; False writes nothing. None is True.
    """
    pairs = [pair for pair in self._pairs(values) if pair[0] is not None]
    if pairs:
      _write_if(apply, lambda: _assign(*zip(*pairs, strict=True)))

  def _pairs(
    self, values: Sequence[Sequence[_T]]
  ) -> list[tuple[tf.Variable | None, _T]]:
    """Pairs each value with its shared variable, None for a worker's state."""
    return [
      pair
      for pairs in zip(self._shared, values, strict=True)
      for pair in zip(*pairs, strict=True)
    ]


def _write_if(apply: tf.Tensor | None, write: Callable[[], None]) -> None:
  """Calls `write` if `apply`; a branch, since `tf.where` copies all values."""
  if apply is None:
    write()
  else:
    tf.cond(apply, write, lambda: None)


def _assign(
  variables: Sequence[tf.Variable], values: Sequence[tf.Tensor]
) -> None:
  for variable, value in zip(variables, values, strict=True):
    variable.assign(value)


class MethodStates:
  """The states of a run's workers in this process.

  Attributes:
    declared: the declarations of all states, the shared ones of replicas too.
    workers: for each device and WORKER state one variable per worker.
  """

  def __init__(
    self,
    codec: gradients.GradientCodec,
    exchange: protocol.Exchange,
    pass_states: Sequence[methods.State] = (),
  ) -> None:
    """Makes the variables, with the initial values of the states.

    Args:
      codec: of the whole model, cut into parts or not.
      exchange: connects the workers.
      pass_states: the declarations of the pass, all of owner WORKER;
        `State.variable` is an index in the model.
    """
    more = {Key(state.name, state.variable): state for state in pass_states}
    self.declared = declarations(codec) | more
    self.workers = tuple(
      make_worker_variables(
        self.declared, device, len(exchange.workers_of(index))
      )
      for index, device in enumerate(exchange.devices)
    )
    self._pass_keys = tuple(more)

  def pass_states(self, device_index: int) -> NodeStates:
    """The pass's states on the device with this index in the exchange."""
    workers = self.workers[device_index]
    return NodeStates([workers[key] for key in self._pass_keys])
