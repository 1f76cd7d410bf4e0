"""Training steps of a model in fragments; each step exchanges one fragment."""

from collections.abc import Sequence

import tensorflow as tf

from terngrad.step import step as steps_lib


class FragmentSteps(steps_lib.Step):
  """Takes the steps of all fragments in turn."""

  def __init__(self, steps: Sequence[steps_lib.Step]) -> None:
    """Takes one step for each fragment, in the order of the fragments."""
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
    """Takes the step of the fragment whose turn it is; see `Step.take`."""
    return self._steps[int(step) % len(self._steps)].take(
      images, labels, step, learning_rate, averaging_decay, stop
    )
