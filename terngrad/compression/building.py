"""The step of a Keras classifier, put together for loops of one's own."""

from collections.abc import Callable
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from terngrad import errors
from terngrad.cluster import devices
from terngrad.codec import coded
from terngrad.codec import method
from terngrad.codec import policy
from terngrad.codec.methods import registry
from terngrad.compression import scoring
from terngrad.exchange import protocol
from terngrad.passes import recomputing
from terngrad.reduce import bucketing
from terngrad.reduce import gradients
from terngrad.reduce import states
from terngrad.step import model_variables
from terngrad.step import optimizers
from terngrad.step import passes
from terngrad.step import replicas
from terngrad.step import step as steps
from terngrad.training import run_codecs


class Choices(NamedTuple):
  """How a model is trained.

  Attributes:
    codec: as `--codec` spells it, or a `codec.method.Method`.
    rules: other codes for some variables, as `--codec_rules` spells them.
    in_float32: takes a `codec.policy.VariableSpec`; True leaves the gradient of
      that variable as it is.
    optimizer: as `--optimizer` spells it.
    loss: see `scoring.loss_function`.
    own_statistics: True where each device keeps its own moving statistics.
    recomputes: True where activations are computed again in the backward pass,
      see `recomputing`.
    mean_share: see `passes.ModelPass`.
    seed: of the random codes.
  """

  codec: str | method.Method = 'ternary'
  rules: str = ''
  in_float32: Callable[[policy.VariableSpec], bool] = lambda spec: False
  optimizer: str = 'momentum'
  loss: passes.LossFunction = passes.PLAIN
  own_statistics: bool = False
  recomputes: bool = False
  mean_share: tf.Variable | None = None
  seed: int = 1


class Built(NamedTuple):
  """A model in training.

  Attributes:
    plan: `model_variables.ModelVariables`.
    codec: of the gradients, or None.
    replicas: one a device, without averages.
    step: the traced step, or None. One in which a loss or a gradient is not
      finite changes nothing; see `check_taken`.
  """

  plan: model_variables.ModelVariables
  codec: gradients.GradientCodec | None
  replicas: tuple[replicas.Replica, ...]
  step: steps.TrainStep | None


def build(
  model: keras.Model, exchange: protocol.Exchange, choices: Choices
) -> Built:
  """Makes replicas and the step; the first replica is the model's own.

  Args:
    model: maps images to logits [b, classes].
    exchange: see `step.Training`.
    choices: how it is trained.

  Raises:
    ValueError: the text of a codec, a rule or the optimizer names none; or the
      model cannot be cut to be recomputed.
  """
  devices.keep_order_of_sums()
  plan = model_variables.variables_of(model)
  specs = run_codecs.variable_specs(plan)
  methods = _methods(specs, choices, exchange.num_workers)
  codec = run_codecs.on_devices(
    bucketing.gradient_codec(specs, methods), exchange.devices
  )
  rule = optimizers.parse(choices.optimizer, 0.9)
  copies = replicas.create(
    plan,
    rule,
    exchange.devices,
    own_statistics=choices.own_statistics,
    shared=states.shared(codec),
    averaged=False,
  )
  kind = recomputing.RecomputedPass if choices.recomputes else passes.ModelPass
  loss = scoring.loss_function(choices.loss)
  training = steps.Training(
    kind(model, plan, loss, mean_share=choices.mean_share),
    exchange,
    copies,
    states.MethodStates(codec, exchange),
    rule,
    choices.seed,
    skips_not_finite=True,
  )
  return Built(plan, codec, copies, steps.TrainStep(training, codec))


def check_taken(result: steps.StepResult, step: int, workers: str) -> None:
  """Refuses a step in which a loss or a gradient was not finite.

  Args:
    result: of a `Built.step`.
    step: its number, from 1.
    workers: what to call them.

  Raises:
    errors.TrainingError: the step was not taken; says on which workers.
  """
  if result.is_taken:
    return
  entropy, probes = result.entropy.numpy(), result.probes.numpy()
  with np.errstate(over='ignore'):
    usable = np.isfinite(probes * np.float32(len(entropy))).all(axis=1)
  finite = usable & np.isfinite(entropy)
  raise errors.TrainingError(
    f'Step {step}: expected finite numbers, received NaN or infinity in the '
    f'loss or the gradient of {workers} {np.flatnonzero(~finite)}. Nothing was '
    'updated: lower the learning rate, or leave these examples out.'
  )


def forward_only(model: keras.Model, exchange: protocol.Exchange) -> Built:
  """A `Built` that takes no step: without slots, codec and `step`."""
  plan = model_variables.variables_of(model)
  no_slots = optimizers.GradientDescent()
  copies = replicas.create(plan, no_slots, exchange.devices, averaged=False)
  return Built(plan, None, copies, None)


def checked(model):
  """The model, if its variables are there.

  Raises:
    ValueError: they are not, or it is no model.
  """
  if not isinstance(model, keras.Model) or not model.built:
    raise ValueError(
      'model_fn: expected a keras.Model whose variables are made, received '
      f'{type(model).__name__} without them. Return a model that begins with '
      'keras.Input, or build it.'
    )
  return model


def _methods(specs, choices, num_workers):
  """The `codec.method.Method` of each variable."""
  decided = [
    (choices.in_float32, 'identity'),
    *policy.parse(choices.rules),
    (policy.always, choices.codec),
  ]
  # Equal texts are one method, whose variables are coded together.
  made = {
    code: registry.method(code, num_workers)
    if isinstance(code, str)
    else coded.as_method(code)
    for _, code in decided
  }
  return [made[code] for code in policy.policy(decided, specs)]
