"""Passes that XLA compiles, under the conditions under which Keras compiles."""

from typing import NamedTuple

import keras
import tensorflow as tf
from tensorflow.python.framework import config

from terngrad.codec.stages import tracing
from terngrad.exchange import protocol
from terngrad.exchange import towers
from terngrad.step import device_arguments
from terngrad.step import passes

_AUTO, _ON = 'auto', 'true'


class Decision(NamedTuple):
  """Whether XLA compiles the passes.

  Attributes:
    compiles: True if it does.
    reason: for the log.
  """

  compiles: bool
  reason: str

  def describe(self) -> str:
    """Formats a log line."""
    state = 'compiled' if self.compiles else 'not compiled'
    return f'passes: {state} by XLA ({self.reason})'


def decide(
  choice: str,
  model: keras.Model,
  exchange: protocol.Exchange,
  can_compile: bool = True,
) -> Decision:
  """Decides whether XLA compiles the passes of a model.

  Args:
    choice: 'true', 'false' or 'auto', the rule of Keras's
      `compile(jit_compile='auto')`: on a GPU, without op determinism, if every
      layer supports it and no other device takes part.
    model: has never been compiled by Keras.
    exchange: connects the workers.
    can_compile: False if the kind of the pass does not allow it.
  """
  if choice != _AUTO:
    return Decision(choice == _ON, f'--jit_compile={choice}')
  reason = _reason_against(model, exchange, can_compile)
  return Decision(not reason, f'--jit_compile=auto{reason}')


def _reason_against(
  model: keras.Model, exchange: protocol.Exchange, can_compile: bool
) -> str:
  """Explains why 'auto' does not compile; '' if it does."""
  if not tf.config.list_physical_devices('GPU'):
    return ': there is no GPU'
  if not isinstance(exchange, towers.Towers) or len(exchange.devices) > 1:
    return ': there are several devices'
  if not can_compile:
    return ': another option does not allow it'
  if config.is_op_determinism_enabled():
    return ': op determinism is on'
  # For a model that was never compiled Keras decides now.
  return '' if model.jit_compile else ': a layer does not support it'


class CompiledPass(passes.WrappedPass):
  """A pass that XLA compiles, once for each shape of the examples."""

  def __init__(self, node_pass: passes.Pass) -> None:
    """Wraps a pass without states; it compiles when it is called."""
    super().__init__(node_pass)

    def gradients(
      parameters: list[tf.Tensor],
      non_trainable: list[tf.Tensor],
      packed: list[tf.Tensor],
      scale: tf.Tensor | None,
      types: tuple[str, ...],
    ) -> tuple[list[tf.Tensor], tf.Tensor, list[tf.Tensor]]:
      images, labels, key = device_arguments.unpack(packed, types)
      results: tuple[list[tf.Tensor], tf.Tensor, list[tf.Tensor]] = (
        node_pass.gradients(
          parameters, non_trainable, images, labels, key, scale
        )
      )
      return results

    self._gradients = tracing.compiled(gradients)

  def uncompiled(self) -> passes.Pass:
    """Returns the pass itself."""
    return self._node_pass

  def gradients(
    self,
    parameters: list[tf.Tensor],
    non_trainable: list[tf.Tensor],
    images: tf.Tensor,
    labels: tf.Tensor,
    key: tf.Tensor,
    scale: tf.Tensor | None = None,
  ) -> tuple[list[tf.Tensor], tf.Tensor, list[tf.Tensor]]:
    """Calls the compiled pass; see `passes.Pass.gradients`."""
    examples = images, labels, key
    return self._gradients(
      parameters,
      non_trainable,
      device_arguments.pack(examples),
      scale,
      device_arguments.types_of(examples),
    )


def allows_whole_step(
  node_pass: passes.Pass, exchange: protocol.Exchange
) -> bool:
  """Returns whether XLA may compile a step that sends no messages as a whole.

  It may if it compiles the passes, and a GPU is the only device of a process
  without others. On CPUs the bits of such a step would depend on how many
  devices a run has.
  """
  if not isinstance(node_pass, CompiledPass):
    return False
  if not isinstance(exchange, towers.Towers) or len(exchange.devices) > 1:
    return False
  return tf.DeviceSpec.from_string(exchange.devices[0]).device_type == 'GPU'
