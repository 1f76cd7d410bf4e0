"""Local steps of models that are built from functions; see `passes`."""

import contextlib
from collections.abc import Iterator
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from terngrad import errors
from terngrad.codec import method
from terngrad.compression import local_arguments
from terngrad.config import devices as devices_options
from terngrad.config import optimizer as optimizer_options
from terngrad.passes import local_steps
from terngrad.reduce import gradients
from terngrad.reduce import states
from terngrad.step import model_variables
from terngrad.step import passes
from terngrad.training import building
from terngrad.training import run_codecs


class LocalPart(NamedTuple):
  """What local steps add to a training step.

  Attributes:
    training: None without local steps.
    node_pass: of one batch.
    declared: the states of a worker between two exchanges.
  """

  training: local_steps.TrainerLocalSteps | None
  node_pass: passes.Pass
  declared: tuple[method.State, ...] = ()


def build(
  choices: local_arguments.LocalChoices,
  plan: model_variables.ModelVariables,
  codec: gradients.GradientCodec,
  node_pass: passes.Pass,
) -> LocalPart:
  """Builds the local steps.

  Raises:
    errors.ConfigError: an option is out of its range, or has no effect.
  """
  devices = devices_options.DeviceOptions(local_steps=choices.steps)
  optimizer = optimizer_options.OptimizerOptions(
    inner_optimizer=choices.inner,
    outer_learning_rate=choices.outer_learning_rate,
    recipe=choices.recipe,
  )
  devices.validate()
  optimizer.validate()
  optimizer.check_local_steps(choices.steps)
  if choices.steps == 1:
    return LocalPart(None, node_pass)
  specs = run_codecs.variable_specs(plan)
  local = building.build_local(devices, optimizer, codec, node_pass, specs)
  shapes = [variable.shape for variable in plan.trainable]
  return LocalPart(local, node_pass.without_decay(), local.states(shapes))


def variables_of(
  declared: Sequence[method.State], stored: states.MethodStates
) -> list[tf.Variable]:
  """Returns the variables of the states of all workers of this process."""
  keys = [states.Key(state.name, state.variable) for state in declared]
  return [v for device in stored.workers for key in keys for v in device[key]]


@contextlib.contextmanager
def restored_after_failure(variables: Sequence[tf.Variable]) -> Iterator[None]:
  """Restores variables if an error of training leaves the context."""
  before = [variable.read_value() for variable in variables]
  try:
    yield
  except (errors.TrainingError, tf.errors.OpError):
    for variable, value in zip(variables, before, strict=True):
      variable.assign(value)
    raise
