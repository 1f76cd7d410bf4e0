"""A run that is put together; see `assembly`."""

import dataclasses
from collections.abc import Callable
from collections.abc import Iterator
from typing import NamedTuple

import keras
import tensorflow as tf

from terngrad.checkpoint import checkpoints
from terngrad.checkpoint import stored_states
from terngrad.config import optimizer as optimizer_options
from terngrad.exchange import protocol
from terngrad.reduce import fragments
from terngrad.reduce import gradients
from terngrad.reduce import programs
from terngrad.step import replicas
from terngrad.step import schedules
from terngrad.step import step as steps
from terngrad.training import batches
from terngrad.training import execution


class Stage(NamedTuple):
  """The code of some of the first steps.

  Attributes:
    until: steps before which it is used.
    codec: of those steps.
    step: the traced step.
  """

  until: int
  codec: gradients.GradientCodec
  step: steps.Step


@dataclasses.dataclass(eq=False)
class Run:
  """All that the training loop needs.

  Attributes:
    context: where it takes place.
    shares: examples of each worker in a batch, where the devices have weights;
      None for equal ones.
    epochs: by the examples there are.
    max_steps: steps to train.
    model: with the variables of the first replica.
    score: scores the present parameters, see `epoch_scores.scorer`; {} where
      nothing is to be scored.
    optimizer: the flags that learning rates depend on.
    replicas: one a device.
    names: of a replica's variables.
    parameters: names of the parameters, the first of `names`.
    logits: names of all variables of the classifiers, auxiliary ones too.
    order: names of the net's variables, layer by layer.
    codec: of the coded steps.
    float_codec: the same with float32 gradients.
    coded_step: the traced step; with fragments those of all in turn.
    float_step: the same with float32 gradients.
    warm_up: of the first steps.
    decay: all L2 terms, of the parameters of the first replica.
    layout: of checkpoints.
    method_states: names of what methods share, the last of `names`.
    store: of what methods and passes remember.
    hooks: what the loop does besides its steps.
  """

  context: execution.ExecutionContext
  shares: tuple[int, ...] | None
  epochs: schedules.Epochs
  max_steps: int
  model: keras.Model
  score: Callable[[], dict[str, float]]
  optimizer: optimizer_options.Optimizer
  replicas: tuple[replicas.Replica, ...]
  names: list[str]
  parameters: list[str]
  logits: frozenset[str]
  order: tuple[str, ...]
  codec: gradients.GradientCodec
  float_codec: gradients.GradientCodec
  coded_step: steps.Step
  float_step: steps.Step
  warm_up: tuple[Stage, ...]
  decay: programs.WeightDecay
  layout: checkpoints.Layout
  method_states: list[str]
  store: stored_states.Store
  hooks: execution.Hooks

  @property
  def exchange(self) -> protocol.Exchange:
    """Between the workers."""
    return self.context.exchange

  def batches(self, step: int) -> Iterator[batches.Batch]:
    """The batches after so many steps."""
    # Only where it may have shares need a context know of them.
    more = {'shares': self.shares} if self.shares else {}
    return self.context.batches(step, **more)

  def learning_rate(self, step: int) -> float:
    """The learning rate after so many steps."""
    steps_per_epoch = self.epochs.num_examples / self.epochs.batch_size
    return schedules.learning_rate(
      self.optimizer, step, steps_per_epoch, self.max_steps
    )

  @tf.function
  def regularization(self) -> tf.Tensor:
    """The sum of the L2 terms of the present parameters, float32 []."""
    return self.decay.total(
      [tf.convert_to_tensor(v) for v in self.replicas[0].trainable]
    )

  def chosen(
    self, step: int, floats: bool
  ) -> tuple[steps.Step, gradients.GradientCodec]:
    """(the traced step, its codec) after so many steps, or with floats."""
    coded = [(s.step, s.codec) for s in self.warm_up if step < s.until]
    coded.append((self.coded_step, self.codec))
    take, codec = (self.float_step, self.float_codec) if floats else coded[0]
    return take, fragments.of_step(codec, step)
