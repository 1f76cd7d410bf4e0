"""What methods and passes remember from step to step, beside the replicas.

A state is of one variable of the model. Those that every device computes the
same are variables of each replica, with its parameters. Those of workers stand
here: a variable for each node of this process, on its device. Passes remember
what is of workers alone.
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
  """Which state: its name, and the index of its variable in the model."""

  name: str
  variable: int


def keys_of(bucket: buckets.Bucket) -> list[Key]:
  """The keys of the states of a bucket."""
  return [Key(s.name, bucket.indices[s.variable]) for s in bucket.states]


def declared(codec: gradients.GradientCodec) -> dict[Key, methods.State]:
  """The states of all variables of a codec.

  Args:
    codec: `reduce.gradients.GradientCodec` of the whole model.

  Returns:
    dict of `Key` to `codec.method.State`.
  """
  return {
    key: state
    for bucket in codec.buckets
    for key, state in zip(keys_of(bucket), bucket.states, strict=True)
  }


def shared(codec: gradients.GradientCodec) -> dict[Key, methods.State]:
  """`declared`, those of owner SHARED, as `replicas.create` takes them."""
  return {
    key: state
    for key, state in declared(codec).items()
    if state.owner == methods.SHARED
  }


def of_workers(
  declared_states: dict[Key, methods.State], device: str, count: int
) -> dict[Key, list[tf.Variable]]:
  """Variables for the nodes of a device.

  Args:
    declared_states: from `declared`.
    device: its name.
    count: nodes.

  Returns:
    dict of `Key` to a list of variables, one a node.
  """
  with tf.device(device):
    return {
      key: [
        tf.Variable(state.first_value(), trainable=False) for _ in range(count)
      ]
      for key, state in declared_states.items()
      if state.owner == methods.WORKER
    }


def of_replica(
  shared_states: Mapping[Key, methods.State], device: str
) -> dict[Key, tf.Variable]:
  """Variables on a device, from what `shared` returns."""
  with tf.device(device):
    return {
      key: tf.Variable(state.first_value(), trainable=False)
      for key, state in shared_states.items()
    }


class OfNodes:
  """States of the nodes of one device."""

  def __init__(self, lists: Sequence[Sequence[tf.Variable]]) -> None:
    """Keeps the variables.

    Args:
      lists: for each state the list of its variables, one a node.
    """
    self._nodes = list(zip(*lists, strict=True))

  def __bool__(self) -> bool:
    """Whether there are states."""
    return bool(self._nodes)

  def read(self, node: tf.Tensor) -> list[tf.Tensor]:
    """The list of a node's states; its number on the device is int32 []."""
    found = self._at(node, lambda own: [v.read_value() for v in own])
    return [] if found is None else found

  def write(self, node: tf.Tensor, values: Sequence[tf.Tensor]) -> None:
    """Keeps a node's states, a list in the order of `read`."""
    self._at(node, lambda own: _assign(own, values))

  def _at(
    self, node: tf.Tensor, act: Callable[[Sequence[tf.Variable]], _T]
  ) -> _T | None:
    """Calls a function with the variables of a node; None for no variables."""
    if len(self._nodes) < 2:
      return act(self._nodes[0]) if self._nodes else None
    return tf.switch_case(
      node, [functools.partial(act, own) for own in self._nodes]
    )


class DeviceStates(NamedTuple):
  """The states on one device.

  Attributes:
    workers: dict of `Key` to the variables of its workers.
    shared: dict of `Key` to the variable that all workers share.
  """

  workers: dict[Key, list[tf.Variable]]
  shared: Mapping[Key, tf.Variable]


class OfPart:
  """The states of a part of a model, on one device."""

  def __init__(
    self,
    codec: gradients.GradientCodec,
    variables: Sequence[int],
    states: DeviceStates,
  ) -> None:
    """Finds the variables.

    Args:
      codec: of the part.
      variables: for each of its variables the index by which states are known.
      states: those of the device.
    """
    keys = [
      [Key(name, variables[i]) for name, i in keys_of(bucket)]
      for bucket in codec.buckets
    ]
    # None in place of what is of workers.
    self._shared = [[states.shared.get(key) for key in own] for own in keys]
    workers = [states.workers.get(key) for own in keys for key in own]
    self._own = OfNodes([variables for variables in workers if variables])

  def read(self, node: tf.Tensor) -> list[list[tf.Tensor]]:
    """All states of a node, a list a bucket.

    Args:
      node: int32 [], its number on the device.
    """
    own = iter(self._own.read(node))
    return [
      [next(own) if v is None else v.read_value() for v in variables]
      for variables in self._shared
    ]

  def read_shared(self) -> list[list[tf.Tensor | None]]:
    """The states that all share, None in place of others; a list a bucket."""
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
    """Keeps what a node's function returned.

    Args:
      node: int32 [].
      values: what `read` returned, changed.
      apply: bool [], False leaves everything as it is; None is True.
    """
    own = [value for v, value in self._pairs(values) if v is None]
    if own:
      _if(apply, lambda: self._own.write(node, own))

  def write_shared(
    self,
    values: Sequence[Sequence[tf.Tensor | None]],
    apply: tf.Tensor | None = None,
  ) -> None:
    """Keeps what `decode` returned; see `write`."""
    pairs = [pair for pair in self._pairs(values) if pair[0] is not None]
    if pairs:
      _if(apply, lambda: _assign(*zip(*pairs, strict=True)))

  def _pairs(
    self, values: Sequence[Sequence[_T]]
  ) -> list[tuple[tf.Variable | None, _T]]:
    """Each shared variable, or None for a worker's own, with its value."""
    return [
      pair
      for pairs in zip(self._shared, values, strict=True)
      for pair in zip(*pairs, strict=True)
    ]


def _if(apply: tf.Tensor | None, write: Callable[[], None]) -> None:
  """Writes states; a branch, since choosing values would copy all of them."""
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
  """What a run remembers in this process, beside replicas.

  Attributes:
    declared: dict of `Key` to `codec.method.State`, those of replicas too.
    workers: for each device a dict of `Key` to a list of variables, one a node.
  """

  def __init__(
    self,
    codec: gradients.GradientCodec,
    exchange: protocol.Exchange,
    of_pass: Sequence[methods.State] = (),
  ) -> None:
    """Makes the variables, with their first values.

    Args:
      codec: `reduce.gradients.GradientCodec` of the whole model, in parts or
        not.
      exchange: see `step.Training`.
      of_pass: what the pass remembers, a tuple of `codec.method.State` of
        workers, of the variables of the model.
    """
    own = {Key(state.name, state.variable): state for state in of_pass}
    self.declared = declared(codec) | own
    self.workers = tuple(
      of_workers(self.declared, device, len(exchange.workers_of(index)))
      for index, device in enumerate(exchange.devices)
    )
    self._of_pass = tuple(own)

  def of_pass(self, device_index: int) -> OfNodes:
    """`OfNodes` of what the pass remembers, on a device of the exchange."""
    workers = self.workers[device_index]
    return OfNodes([workers[key] for key in self._of_pass])
