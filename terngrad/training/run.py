"""The assembled run that the training loop trains."""

import dataclasses
from collections.abc import Callable
from collections.abc import Iterator
from typing import NamedTuple

import keras
import tensorflow as tf

from terngrad.checkpoint import checkpoints
from terngrad.checkpoint import stored_states
from terngrad.codec.methods import updates
from terngrad.codec.stages import tracing
from terngrad.config import optimizer as optimizer_options
from terngrad.exchange import protocol
from terngrad.reduce import fragments
from terngrad.reduce import gradients
from terngrad.reduce import weight_decay
from terngrad.step import replicas
from terngrad.step import schedules
from terngrad.step import step as steps
from terngrad.training import batches
from terngrad.training import execution


class WarmUpStage(NamedTuple):
  """A warm-up stage: a codec for some of the first steps.

  Attributes:
    until: the stage ends after this number of steps.
    codec: the codec of the stage.
    step: the traced step of the stage.
  """

  until: int
  codec: gradients.GradientCodec
  step: steps.Step


@dataclasses.dataclass(eq=False)
class Run:
  """Everything that the training loop needs; `assembly.assemble` builds it.

  Attributes:
    context: the exchange, the data and the hooks.
    shares: examples of each worker in a batch; None for equal shares.
    epochs: converts steps to epochs.
    max_steps: number of steps to train.
    model: the Keras model; its variables are those of the first replica.
    score: scores the current parameters, see `epoch_scores.scorer`; returns {}
      if there are no subsets to score.
    optimizer: the options that the learning rate depends on.
    replicas: one per device of this process.
    names: names of a replica's variables.
    parameters: names of the trained parameters, the first of `names`.
    logits: names of the variables of all classifiers, with auxiliary ones.
    order: names of the network's variables, layer by layer.
    codec: codec of the coded steps.
    float_codec: codec of the float32 steps.
    coded_step: the traced step; with fragments, one per fragment, in turn.
    float_step: the traced step with float32 gradients.
    warm_up: stages of the first steps.
    decay: all L2 terms of the parameters of the first replica.
    layout: description of the run's checkpoints.
    method_states: names of the methods' shared states, the last of `names`.
    store: per-worker states of methods and passes.
    hooks: periodic actions of the loop and its time limits.
    compiling: log line on whether XLA compiles the passes, and why.
  """

  context: execution.ExecutionContext
  shares: tuple[int, ...] | None
  epochs: schedules.Epochs
  max_steps: int
  model: keras.Model
  score: Callable[[], dict[str, float]]
  optimizer: optimizer_options.OptimizerOptions
  replicas: tuple[replicas.Replica, ...]
  names: list[str]
  parameters: list[str]
  logits: frozenset[str]
  order: tuple[str, ...]
  codec: gradients.GradientCodec
  float_codec: gradients.GradientCodec
  coded_step: steps.Step
  float_step: steps.Step
  warm_up: tuple[WarmUpStage, ...]
  decay: weight_decay.WeightDecay
  layout: checkpoints.Layout
  method_states: list[str]
  store: stored_states.Store
  hooks: execution.Hooks
  compiling: str = ''

  @property
  def exchange(self) -> protocol.Exchange:
    """The exchange between the workers."""
    return self.context.exchange

  @property
  def float_steps(self) -> int:
    """Number of first steps that must be float32 steps; 0 for none."""
    return updates.float_steps([b.method for b in self.codec.buckets])

  def batches(self, step: int) -> Iterator[batches.Batch]:
    """Yields the batches that follow `step` completed steps."""
    # A context need not accept `shares` unless the devices have weights.
    more = {'shares': self.shares} if self.shares else {}
    return self.context.batches(step, **more)

  def learning_rate(self, step: int) -> float:
    """Returns the learning rate after `step` completed steps."""
    steps_per_epoch = self.epochs.num_examples / self.epochs.batch_size
    return schedules.learning_rate(
      self.optimizer, step, steps_per_epoch, self.max_steps
    )

  @tracing.function
  def regularization(self) -> tf.Tensor:
    """Computes the sum of the L2 terms of the parameters, float32 []."""
    return self.decay.total(
      [tf.convert_to_tensor(v) for v in self.replicas[0].trainable]
    )

  def select_step(
    self, step: int, floats: bool
  ) -> tuple[steps.Step, gradients.GradientCodec]:
    """Returns the traced step after `step` completed steps, and its codec.

    `floats` selects the step with float32 gradients.
    """
    coded = [(s.step, s.codec) for s in self.warm_up if step < s.until]
    coded.append((self.coded_step, self.codec))
    take, codec = (self.float_step, self.float_codec) if floats else coded[0]
    return take, fragments.step_codec(codec, step)
