"""Steps that are traced, and the steps of several fragments as one."""

from collections.abc import Sequence

import tensorflow as tf

from terngrad.reduce import gradients as gradients_lib
from terngrad.step import step as steps_lib


class TracedStep(steps_lib.Step):
  """A step that is traced when it is first taken.

  Attributes:
    program: the traced `step.TrainStep.take`.
  """

  def __init__(
    self, training: steps_lib.Training, codec: gradients_lib.GradientCodec
  ) -> None:
    """Traces nothing yet; see `step.TrainStep`."""
    self.program = tf.function(
      steps_lib.TrainStep(training, codec).take, reduce_retracing=True
    )

  def take(
    self,
    images: tf.Tensor,
    labels: tf.Tensor,
    step: tf.Tensor,
    learning_rate: tf.Tensor,
    averaging_decay: tf.Tensor,
    stop: tf.Tensor | float = 0.0,
  ) -> steps_lib.StepResult:
    """See `step.Step.take`."""
    return self.program(
      images, labels, step, learning_rate, averaging_decay, stop
    )


def in_turn(steps: Sequence[steps_lib.Step]) -> steps_lib.Step:
  """One step of those of all fragments; the only one, where there is one."""
  return steps[0] if len(steps) == 1 else StepInTurn(steps)


class StepInTurn(steps_lib.Step):
  """The steps of all fragments, one after the other."""

  def __init__(self, steps: Sequence[steps_lib.Step]) -> None:
    """Takes a step of each fragment."""
    self._steps = steps

  def take(
    self,
    images: tf.Tensor,
    labels: tf.Tensor,
    step: tf.Tensor,
    learning_rate: tf.Tensor,
    averaging_decay: tf.Tensor,
    stop: tf.Tensor | float = 0.0,
  ) -> steps_lib.StepResult:
    """See `step.Step.take`."""
    return self._steps[int(step) % len(self._steps)].take(
      images, labels, step, learning_rate, averaging_decay, stop
    )
