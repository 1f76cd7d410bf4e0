"""What methods and passes remember from step to step, beside the replicas.

A state is of one variable of the model. Those that every device computes the
same are variables of each replica, with its parameters. Those of workers stand
here: a variable for each node of this process, on its device. Passes remember
what is of workers alone.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple
from typing import cast

import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.exchange import protocol
from terngrad.reduce import gradients


class Key(NamedTuple):
  """Which state: its name, and the index of its variable in the model."""

  name: str
  variable: int


def declared(codec: gradients.GradientCodec) -> dict[Key, methods.State]:
  """The states of all variables of a codec.

  Args:
    codec: `reduce.gradients.GradientCodec` of the whole model.

  Returns:
    dict of `Key` to `codec.method.State`.
  """
  found = {}
  for bucket in codec.buckets:
    for state in bucket.states:
      found[Key(state.name, bucket.indices[state.variable])] = state
  return found


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


class OfNodes:
  """States of the nodes of one device."""

  def __init__(self, lists: Sequence[Sequence[tf.Variable]]) -> None:
    """Keeps the variables.

    Args:
      lists: for each state the list of its variables, one a node.
    """
    self._lists = lists

  def __bool__(self) -> bool:
    """Whether there are states."""
    return bool(self._lists)

  def read(self, node: tf.Tensor) -> list[tf.Tensor]:
    """The list of a node's states; its number on the device is int32 []."""
    lists = self._lists
    if not lists:
      return []
    if len(lists[0]) == 1:
      return [variables[0].read_value() for variables in lists]

    def branch(number: int) -> Callable[[], list[tf.Tensor]]:
      return lambda: [variables[number].read_value() for variables in lists]

    return tf.switch_case(node, [branch(i) for i in range(len(lists[0]))])

  def write(self, node: tf.Tensor, values: Sequence[tf.Tensor]) -> None:
    """Keeps a node's states, a list in the order of `read`."""
    lists = self._lists
    if not lists:
      return
    if len(lists[0]) == 1:
      _assign([variables[0] for variables in lists], values)
      return

    def branch(number: int) -> Callable[[], None]:
      return lambda: _assign([v[number] for v in lists], values)

    tf.switch_case(node, [branch(i) for i in range(len(lists[0]))])


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
    workers, shared = states
    self._owners = [[s.owner for s in b.states] for b in codec.buckets]
    self._workers, self._shared = [], []
    for bucket in codec.buckets:
      keys = [
        Key(state.name, variables[bucket.indices[state.variable]])
        for state in bucket.states
      ]
      self._workers.append([workers.get(key, ()) for key in keys])
      self._shared.append([shared.get(key) for key in keys])
    self._own = OfNodes([v for bucket in self._workers for v in bucket if v])

  def read(self, node: tf.Tensor) -> list[list[tf.Tensor]]:
    """All states of a node, a list a bucket.

    Args:
      node: int32 [], its number on the device.
    """
    own = iter(self._own.read(node))
    return [
      [
        next(own)
        if owner == methods.WORKER
        # All that is no worker's is shared.
        else cast(tf.Variable, variable).read_value()
        for owner, variable in zip(owners, variables, strict=True)
      ]
      for owners, variables in zip(self._owners, self._shared, strict=True)
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
    own = [
      value
      for owners, of_bucket in zip(self._owners, values, strict=True)
      for owner, value in zip(owners, of_bucket, strict=True)
      if owner == methods.WORKER
    ]
    if own:
      _if(apply, lambda: self._own.write(node, own))

  def write_shared(
    self,
    values: Sequence[Sequence[tf.Tensor | None]],
    apply: tf.Tensor | None = None,
  ) -> None:
    """Keeps what `decode` returned; see `write`."""
    pairs = [
      (variable, value)
      for variables, of_bucket in zip(self._shared, values, strict=True)
      for variable, value in zip(variables, of_bucket, strict=True)
      if variable is not None
    ]
    if pairs:
      _if(apply, lambda: _assign(*zip(*pairs, strict=True)))


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
