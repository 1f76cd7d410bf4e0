"""The training step of a Keras classifier, for custom training loops."""

import functools
from typing import NamedTuple
from typing import TypeAlias

import keras
import numpy as np
import tensorflow as tf

from terngrad import errors
from terngrad.cluster import devices
from terngrad.codec import coded
from terngrad.codec import method
from terngrad.codec import policy
from terngrad.codec.methods import registry
from terngrad.compression import local_arguments
from terngrad.compression import local_training
from terngrad.compression import scoring
from terngrad.config import codes
from terngrad.exchange import protocol
from terngrad.passes import compiling
from terngrad.passes import recomputing
from terngrad.reduce import gradients
from terngrad.reduce import states
from terngrad.step import model_variables
from terngrad.step import optimizers
from terngrad.step import passes
from terngrad.step import replicas
from terngrad.step import step as steps
from terngrad.training import run_codecs

Array: TypeAlias = np.ndarray | tf.Tensor


class Choices(NamedTuple):
  """Options of how a model is trained.

  Attributes:
    codec: a method, or a text as for `--codec`.
    codec_rules: codecs for some variables, as for `--codec_rules`.
    in_float32: returns True for a variable whose gradient is not compressed.
    optimizer: a text as for `--optimizer`. None: the model is only evaluated.
    loss: a function of (outputs, labels), see `scoring.loss_function`.
    local_statistics: True if each device keeps local moving statistics.
    recomputes: True if the backward pass computes activations again, see
      `recomputing`.
    mean_share: examples per device, averaged over all devices; None for equal
      batches. See `passes.ModelPass`.
    seed: seed of the random codes.
    jit_compile: True, False or 'auto', see `compiling.decide`.
    local: local steps between two exchanges.
  """

  codec: str | method.Method = 'ternary'
  codec_rules: str = ''
  in_float32: policy.Predicate = lambda spec: False
  optimizer: str | None = 'momentum'
  loss: passes.LossFunction | None = None
  local_statistics: bool = False
  recomputes: bool = False
  mean_share: tf.Variable | None = None
  seed: int = 1
  jit_compile: bool | str = 'auto'
  local: local_arguments.LocalChoices = local_arguments.LocalChoices()


class BuiltModel:
  """A model with its replicas and its training step.

  Attributes:
    codec: the gradients' codec; None for a model that is only evaluated.
    replicas: one per device of this process, without moving averages.
    steps: steps taken.
  """

  # The name of the workers in messages.
  _workers_label = 'workers'
  # Not set for a model that is only evaluated.
  _step: steps.TrainStep
  _warm_up: list[tuple[int, steps.TrainStep]]

  def __init__(
    self, model: keras.Model, exchange: protocol.Exchange, choices: Choices
  ) -> None:
    """Creates the step and replicas; the first uses the model's variables.

    The model maps images to logits [b, classes].

    Raises:
      ValueError: a codec, a rule or the optimizer is unknown, a variable has a
        constraint or is a scale of float8, or the model cannot be split into
        segments to recompute.
    """
    self._exchange = exchange
    self._plan = model_variables.variables_of(model)
    self.steps = 0
    self.codec: gradients.GradientCodec | None = None
    # The states of local steps, which workers change before an exchange.
    self._local_states: list[tf.Variable] = []
    methods = _methods(choices, exchange.num_workers)
    if choices.optimizer is None:
      no_slots = optimizers.GradientDescent()
      self.replicas = replicas.create(
        self._plan, no_slots, exchange.devices, averaged=False
      )
      return
    model_variables.check_trainable(self._plan.trainable)
    devices.keep_order_of_sums()
    built = run_codecs.build(methods, 0, self._plan, exchange.devices)
    codec = built.codec
    rule = optimizers.parse(choices.optimizer, 0.9)
    self.codec = codec
    self.replicas = replicas.create(
      self._plan,
      rule,
      exchange.devices,
      local_statistics=choices.local_statistics,
      shared=states.shared(codec),
      averaged=False,
    )
    self._step, self._warm_up = self._make_steps(model, built, rule, choices)

  def _make_steps(
    self,
    model: keras.Model,
    built: run_codecs.RunCodecs,
    rule: optimizers.Optimizer,
    choices: Choices,
  ) -> tuple[steps.TrainStep, list[tuple[int, steps.TrainStep]]]:
    """Creates the step that updates the replicas.

    Returns:
      (step, steps of a warm-up as (until, step)).
    """
    codec = built.codec
    exchange, saves = self._exchange, choices.recomputes
    pass_class = recomputing.RecomputedPass if saves else passes.ModelPass
    loss = scoring.loss_function(choices.loss)
    node_pass: passes.Pass = pass_class(
      model, self._plan, loss, mean_share=choices.mean_share
    )
    if _compiles(choices, model, exchange):
      node_pass = compiling.CompiledPass(node_pass)
    local = local_training.build(choices.local, self._plan, codec, node_pass)
    stored = states.MethodStates(codec, exchange, local.declared)
    self._local_states = local_training.variables_of(local.declared, stored)
    training = steps.Training(
      local.node_pass,
      exchange,
      self.replicas,
      stored,
      rule,
      choices.seed,
      local=local.training,
      skips_not_finite=True,
    )
    # Stages of a warm-up are those of the codec itself.
    return steps.TrainStep(training, codec), [
      (until, steps.TrainStep(training, stage))
      for until, stage in built.warm_up
    ]

  def _take(
    self, images: Array, labels: Array, learning_rate: float
  ) -> steps.StepResult:
    """Takes a step with the examples of all workers of this process.

    Raises:
      errors.TrainingError: a loss or a gradient is not finite. The message
        lists the workers. Nothing is updated.
    """
    warm_up = [step for until, step in self._warm_up if self.steps < until]
    with local_training.restored_after_failure(self._local_states):
      result = [*warm_up, self._step][0].take(
        images,
        labels,
        *steps.host_numbers(self.steps, learning_rate, 0.0),
      )
      if not result.is_taken:
        raise errors.TrainingError(
          f'Step {self.steps + 1}: expected finite numbers, received NaN or '
          f'infinity in the loss or the gradient of {self._workers_label} '
          f'{_not_finite(result)}. Nothing was updated: lower the learning '
          'rate, or leave these examples out.'
        )
    self.steps += 1
    return result


def _not_finite(result: steps.StepResult) -> np.ndarray:
  """Returns workers whose loss or gradient is not finite, int64 [workers]."""
  entropy, probes = result.entropy.numpy(), result.probes.numpy()
  with np.errstate(over='ignore'):
    usable = np.isfinite(probes * np.float32(len(entropy))).all(axis=1)
  return np.flatnonzero(~(usable & np.isfinite(entropy)))


def _compiles(
  choices: Choices, model: keras.Model, exchange: protocol.Exchange
) -> bool:
  """Decides whether XLA compiles the passes.

  Raises:
    ValueError: `jit_compile` has another value, or the pass cannot be compiled.
  """
  choice, saves = choices.jit_compile, choices.recomputes
  if choice not in (True, False, 'auto') or (choice is True and saves):
    raise ValueError(
      "jit_compile: expected 'auto' or False, or True without "
      f'optimize_gradient_memory, received {choice!r}. Leave it out.'
    )
  text = str(choice).lower()
  return compiling.decide(text, model, exchange, not saves).compiles


def _methods(choices: Choices, num_workers: int) -> codes.RunMethods:
  """Parses the compression methods of all variables."""

  # Variables with equal texts share one method and are encoded together.
  @functools.cache
  def parse(code: str | method.Method) -> method.Method:
    if isinstance(code, str):
      return registry.method(code, num_workers)
    return coded.as_method(code)

  rules = [
    (choices.in_float32, parse('identity')),
    *(
      (holds, parse(code)) for holds, code in policy.parse(choices.codec_rules)
    ),
  ]
  return codes.RunMethods(parse(choices.codec), rules, [])
