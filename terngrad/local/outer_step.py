"""The outer step: the mean change of all processes, and the outer optimizer.

The change is encoded and averaged by `reduce.reducer`, and `step.updates`
applies the optimizer, as for the local steps of the trainers.
"""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from slim import spelling
from terngrad.codec import policy
from terngrad.codec.stages import tracing
from terngrad.compression import codec_states
from terngrad.compression import compressor as compressors
from terngrad.compression import float_gradients
from terngrad.exchange import protocol
from terngrad.local import options as options_lib
from terngrad.step import optimizers
from terngrad.step import replicas
from terngrad.step import updates

# Without slashes, which are groups in files of Keras.
_CODEC, _PARAMETER, _SLOT = 'codec.', 'parameter', 'slot'
_OPTIMIZER = 'optimizer'


class MeanChange(NamedTuple):
  """The result of an exchange.

  Attributes:
    means: float32, for each parameter the mean change of all workers.
    is_finite: False if the change of some worker has NaN or infinity.
    sent_bytes: bytes of messages that this worker sent.
  """

  means: list[tf.Tensor]
  is_finite: bool
  sent_bytes: int


class OuterStep:
  """Parameters, slots and codec states of the outer optimizer.

  Attributes:
    parameters: float32 variables.
    shared: these and the slots; equal in all processes.
  """

  def __init__(
    self,
    options: options_lib.LocalOptions,
    specs: Sequence[policy.VariableSpec],
    exchange: protocol.Exchange,
  ) -> None:
    """Makes the variables; parameters are 0 until `assign`.

    Raises:
      ValueError: the codec or the optimizer is unknown.
    """
    device = exchange.devices[0]
    optimizer = optimizers.parse(options.outer, 0.9)
    self._optimizer = spelling.split(options.outer)[0]
    self._rate = tf.constant(options.outer_learning_rate)
    self._variables = policy.Variables(tuple(range(len(specs))), tuple(specs))
    self._compressor = compressors.Compressor(
      options.codec, options.seed, exchange.num_workers
    )
    self._compressor.connect(exchange)
    with tf.device(device):
      self.parameters = tuple(
        tf.Variable(tf.zeros(spec.shape), trainable=False) for spec in specs
      )
    slots = tuple(replicas.make_slots(optimizer, v) for v in self.parameters)
    replica = replicas.Replica(device, self.parameters, (), slots, ())
    self._slots = {
      f'{_SLOT}.{name}:{index}': variable
      for index, named in enumerate(slots)
      for name, variable in named.items()
    }
    self.shared = [*self.parameters, *self._slots.values()]
    self._update = updates.Update(replica, optimizer, None)

  def assign(self, values: Sequence[np.ndarray]) -> None:
    """Assigns the parameters."""
    for variable, value in zip(self.parameters, values, strict=True):
      variable.assign(value)

  def changes(self, values: Sequence[np.ndarray]) -> list[tf.Tensor]:
    """Computes the parameters minus those of a process, float32."""
    pairs = zip(self.parameters, values, strict=True)
    return [variable - value for variable, value in pairs]

  def reduce(self, changes: list[tf.Tensor], exchanges: int) -> MeanChange:
    """Averages the changes of all workers; every process calls it.

    Args:
      changes: float32, of this worker.
      exchanges: number of exchanges before.
    """
    means, finite, sent = self._reduce(
      changes, tf.constant(exchanges, tf.int64)
    )
    return MeanChange(means, bool(finite), int(sent))

  @tracing.function
  def _reduce(
    self, changes: list[tf.Tensor], exchanges: tf.Tensor
  ) -> tuple[list[tf.Tensor], tf.Tensor, tf.Tensor]:
    reduced = self._compressor.reduce_workers(
      [lambda worker: list(changes)], self._variables, [exchanges]
    )
    probe = tf.size(reduced.pending[0].step.shared_probe)
    # 2^29 words have more bytes than an int32 can count.
    words = tf.reduce_sum(tf.cast(reduced.sent, tf.int64))
    sent = 4 * (words + tf.cast(probe, tf.int64))
    return reduced.means[0], float_gradients.all_flags(reduced.finite[0]), sent

  def apply(self, gradients: list[tf.Tensor], updates: int) -> None:
    """Updates parameters and slots.

    Args:
      gradients: float32, changes to subtract with the learning rate.
      updates: number of updates before, for the bias correction of Adam.
    """
    step = tf.constant(updates, tf.int64)
    self._update(gradients, None, (step, self._rate, tf.constant(0.0)))

  def declare_codec_states(self) -> codec_states.CodecStates:
    """Returns the states of the codec, as variables."""
    return self._compressor.declare(self._variables)

  def states(self) -> dict[str, np.ndarray]:
    """Returns all variables and the optimizer's name, for `load`."""
    found = {name: v.numpy() for name, v in self._named().items()}
    # uint8, since files of Keras hold no arrays of texts.
    found[_OPTIMIZER] = np.frombuffer(self._optimizer.encode(), np.uint8)
    codec = self._compressor.get_states()
    return found | {_CODEC + name: array for name, array in codec.items()}

  def load(self, states: Mapping[str, np.ndarray]) -> None:
    """Loads the result of `states`; other names are ignored.

    Raises:
      ValueError: the states are of another model or optimizer, or damaged.
    """
    self._check_parameters(states)
    self._check_optimizer(states)
    for name, variable in self._named().items():
      variable.assign(states[name])
    self._compressor.load(
      {
        name.removeprefix(_CODEC): array
        for name, array in states.items()
        if name.startswith(_CODEC)
      }
    )

  def _check_parameters(self, states: Mapping[str, np.ndarray]) -> None:
    count = sum(name.startswith(f'{_PARAMETER}:') for name in states)
    found = [states.get(f'{_PARAMETER}:{index}') for index in range(count)]
    received = [None if a is None else list(a.shape) for a in found]
    expected = [variable.shape.as_list() for variable in self.parameters]
    if received != expected:
      raise ValueError(
        f'Local steps: expected loaded states of parameters of the shapes '
        f'{expected}, received states of {received}. Load states of the same '
        'model, or none.'
      )

  def _check_optimizer(self, states: Mapping[str, np.ndarray]) -> None:
    # Older states have no name. Slots of two optimizers may have equal names.
    saved = self._optimizer
    if _OPTIMIZER in states:
      saved = states[_OPTIMIZER].tobytes().decode()
    elif not self._slots.keys() <= states.keys():
      saved = 'another one'
    if saved != self._optimizer:
      raise ValueError(
        'outer: expected the optimizer with which the loaded states were '
        f'saved, {saved}, received {self._optimizer}. Give the same outer, or '
        'load no states.'
      )
    for name, variable in self._slots.items():
      found = list(states[name].shape) if name in states else 'none'
      if found != variable.shape.as_list():
        raise ValueError(
          f'Local steps: expected loaded states with {name} of shape '
          f'{variable.shape.as_list()}, received {found}. Load states that are '
          'not damaged, or none.'
        )

  def _named(self) -> dict[str, tf.Variable]:
    parameters = enumerate(self.parameters)
    return {f'{_PARAMETER}:{i}': v for i, v in parameters} | self._slots
