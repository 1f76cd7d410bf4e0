"""The steps of a model in fragments, of which a step exchanges one."""

from collections.abc import Sequence

import tensorflow as tf

from terngrad.step import step as steps_lib


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
