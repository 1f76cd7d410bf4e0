"""A step that XLA compiles as a whole: passes, mean, L2 terms, update.

XLA then adds the L2 terms and updates the moving averages in the pass over
memory that the optimizer needs. Steps that send messages cannot be compiled so,
because XLA cannot call the kernels and exchanges of codes.
"""

from collections.abc import Sequence

import tensorflow as tf

from terngrad.codec.stages import tracing
from terngrad.reduce import gradients as gradients_lib
from terngrad.reduce import plain
from terngrad.step import device_arguments
from terngrad.step import step as steps


class WholeStep(steps.Step):
  """A `TrainStep` without messages, compiled by XLA."""

  def __init__(
    self, training: steps.Training, codec: gradients_lib.GradientCodec
  ) -> None:
    """Prepares the step; it compiles when it is called.

    `plain.adds_directly` must be True for the codec and the exchange.
    """
    node_pass = training.node_pass.uncompiled()
    self._step = steps.TrainStep(training._replace(node_pass=node_pass), codec)
    self._device = training.exchange.devices[0]
    self._sent = [codec.num_words] * training.exchange.num_workers

  @tracing.function(reduce_retracing=True)
  def take(
    self,
    images: tf.Tensor,
    labels: tf.Tensor,
    step: tf.Tensor,
    learning_rate: tf.Tensor,
    averaging_decay: tf.Tensor,
    stop: tf.Tensor | float = 0.0,
  ) -> steps.StepResult:
    """Takes one step and updates the replica; see `Step.take`."""
    numbers = step, learning_rate, averaging_decay, stop
    arguments = [
      tf.convert_to_tensor(one) for one in (images, labels, *numbers)
    ]
    with tf.device(self._device):
      packed = device_arguments.pack(arguments)
      result = self._program(packed, device_arguments.types_of(arguments))
    # TensorFlow keeps int32 on the host, and would wait for that of a GPU.
    return result._replace(sent=tf.constant(self._sent))

  @tracing.compiled
  def _program(
    self, packed: Sequence[tf.Tensor], types: tuple[str, ...]
  ) -> steps.StepResult:
    result = self._step.take(*device_arguments.unpack(packed, types))
    return result._replace(sent=tf.zeros([]))


def step_class(
  training: steps.Training, codec: gradients_lib.GradientCodec
) -> type[WholeStep] | type[steps.TrainStep]:
  """Returns the class of a codec's step: `WholeStep` if this is possible."""
  is_whole = training.compiles and plain.adds_directly(codec, training.exchange)
  return WholeStep if is_whole else steps.TrainStep
