"""Puts a run together from its configuration; writes nothing."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import keras
import tensorflow as tf

from slim.nets import factory as nets
from slim.nets.blocks import batch_norm
from terngrad.checkpoint import checkpoints
from terngrad.checkpoint import scopes
from terngrad.checkpoint import stored_states
from terngrad.cluster import coordination
from terngrad.cluster import devices as devices_lib
from terngrad.config import cluster
from terngrad.config import options
from terngrad.config import run as run_options
from terngrad.exchange import protocol
from terngrad.passes import accumulation
from terngrad.passes import local_steps
from terngrad.passes import recomputing
from terngrad.reduce import fragments
from terngrad.reduce import gradients
from terngrad.reduce import states
from terngrad.step import loss_scaling
from terngrad.step import passes
from terngrad.step import precision
from terngrad.step import replicas
from terngrad.step import schedules
from terngrad.step import step as steps
from terngrad.step import synchronized
from terngrad.training import batches
from terngrad.training import device_speeds
from terngrad.training import evaluation
from terngrad.training import execution
from terngrad.training import run_codecs
from terngrad.training import shares as shares_lib


class Run(NamedTuple):
  """All that the training loop needs.

  Attributes:
    batches: takes a step, returns an iterator of (images [workers, b, ...],
      labels [workers, b]) from that step on.
    shares: examples of each worker in a batch, where the devices have weights;
      None for equal ones.
    epochs: `schedules.Epochs`.
    max_steps: steps to train.
    model: `keras.Model` with the variables of the first replica.
    score: scores the present parameters, see `evaluation.make_scorer`; or None.
    learning_rate: takes steps taken before, returns that of the next, a float.
    replicas: tuple of `replicas.Replica`.
    names: of a replica's variables.
    parameters: names of the parameters, the first of `names`.
    logits: names of all variables of the classifiers, auxiliary ones too.
    order: names of the net's variables, layer by layer.
    codec: `gradients.GradientCodec` of the coded steps.
    float_codec: the same with float32 gradients.
    coded_step: the traced step, see `step.make_train_step`; with fragments
      those of all in turn.
    float_step: the same with float32 gradients.
    warm_up: tuple of `Stage`, of the first steps.
    regularization: returns the sum of the L2 terms of the present parameters,
      float32 [].
    layout: `checkpoints.Layout`.
    method_states: names of what methods share, the last of `names`.
    store: `stored_states.Store`.
    exchange: see `step.Training`.
    hooks: `execution.Hooks`.
  """

  batches: Callable
  shares: tuple | None
  epochs: schedules.Epochs
  max_steps: int
  model: keras.Model
  score: Callable | None
  learning_rate: Callable
  replicas: tuple
  names: list
  parameters: list
  logits: frozenset
  order: tuple
  codec: gradients.GradientCodec
  float_codec: gradients.GradientCodec
  coded_step: Callable
  float_step: Callable
  warm_up: tuple
  regularization: Callable
  layout: checkpoints.Layout
  method_states: list
  store: stored_states.Store
  exchange: protocol.Exchange
  hooks: execution.Hooks

  def chosen(self, step, floats):
    """(the traced step, its codec) after so many steps, or with floats."""
    take, codec = self._chosen(step, floats)
    return take, fragments.of_step(codec, step)

  def _chosen(self, step, floats):
    if floats:
      return self.float_step, self.float_codec
    for stage in self.warm_up:
      if step < stage.until:
        return stage.step, stage.codec
    return self.coded_step, self.codec


class Stage(NamedTuple):
  """The code of some of the first steps.

  Attributes:
    until: steps before which it is used.
    codec: `gradients.GradientCodec`.
    step: the traced step.
  """

  until: int
  codec: gradients.GradientCodec
  step: Callable


def assemble(config, make_context=None):
  """Builds model, replicas, codec and step.

  Args:
    config: a valid `training.TrainConfig`.
    make_context: returns an `ExecutionContext`; None: `of_this_process`.

  Returns:
    A `Run`.

  Raises:
    errors.ConfigError, slim.errors.DataError: something is not there.
  """
  context = make_context() if make_context else of_this_process(config)
  devices_lib.keep_order_of_sums()
  model = _model(config, context)
  plan = _layout(config, model)
  codecs = _codecs(config, plan, context.exchange.devices)
  codec = codecs.codec
  training = _training(config, context, (model, plan, codec))
  context.assert_same(
    options.values(config, 'shared', options.RUN, options.WORKERS),
    codecs=codecs.names,
    variables=len(plan.names),
    elements=codec.num_elements,
    num_examples=context.data.num_examples,
    num_classes=context.data.num_classes,
  )
  shares, batches = _shares(config, context, training), context.data.batches
  make_step = functools.partial(_make_step, context, training)
  names = replicas.variable_names(plan, training.replicas[0])
  parameters = names[: len(plan.trainable)]
  epochs, max_steps = _length(config, context.data.num_examples)
  return Run(
    # Only where it may have shares need a context know of them.
    batches=functools.partial(batches, shares=shares) if shares else batches,
    shares=shares,
    epochs=epochs,
    max_steps=max_steps,
    model=model,
    score=evaluation.make_scorer(config, model, context),
    learning_rate=_learning_rate(config.optimizer, epochs, max_steps),
    replicas=tuple(training.replicas[index] for index in context.local_devices),
    names=names,
    parameters=parameters,
    logits=_logits(names),
    order=plan.order,
    codec=codec,
    float_codec=codecs.in_float,
    coded_step=make_step(codec),
    float_step=make_step(codecs.in_float),
    warm_up=tuple(Stage(*one, make_step(one[1])) for one in codecs.first),
    regularization=_regularization(training),
    layout=_stored_layout(config, context, max_steps, shares),
    method_states=names[len(names) - len(states.shared(codec)) :],
    store=stored_states.Store(training.states, context.exchange, parameters),
    exchange=context.exchange,
    hooks=context.hooks,
  )


def of_this_process(config):
  """The `execution.ExecutionContext` of a run without parameter servers.

  Blocks until all processes are there. Nothing may have used TensorFlow: the
  CPU can be split only before.

  Raises:
    errors.ConfigError, slim.errors.DataError: something is not there.
  """
  workers, chosen = config.num_workers, config.cluster
  listed = config.devices.devices
  names = devices_lib.named(listed) if listed else ()
  exchange = coordination.join(chosen, config.devices.count, workers, names)
  own = range(exchange.first, exchange.first + exchange.own)
  benchmark = config.run.benchmark_mode
  seconds = chosen.step_timeout + coordination.GRACE_SECONDS
  changes = {}
  if config.devices.bn_statistics == 'synchronized':
    changes['pass_context'] = synchronized.contexts(exchange)
  return execution.ExecutionContext(
    exchange=exchange,
    data=batches.open_data(config.data, config.model, workers, benchmark, own),
    make_step=functools.partial(steps.traced_step, **changes),
    local_devices=range(len(exchange.devices)),
    hooks=execution.Hooks(
      time_limit=functools.partial(
        coordination.time_limit, chosen.tasks, seconds
      )
    ),
    assert_same=functools.partial(coordination.assert_same, exchange),
  )


def _make_step(context, training, codec):
  """The traced step of a codec, or those of its fragments in turn."""
  made = []
  for turn in range(codec.num_fragments):
    if training.local:
      local = training.local._replace(turn=turn)
      training = training._replace(local=local)
    made.append(context.make_step(training, fragments.of_step(codec, turn)))
  return fragments.in_turn(made)


def _shares(config, context, training):
  """Examples of each worker in a batch, where the devices have weights."""
  weights, workers = config.devices.weights, config.num_workers
  if not weights:
    return None
  batch_size, size = config.data.batch_size, config.data.image_size
  if weights == run_options.AUTO:
    shape = batch_size // workers, size, size, context.data.channels
    weights = device_speeds.weights(training, shape)
  return shares_lib.divide(
    batch_size,
    shares_lib.of_workers(weights, workers, len(context.exchange.devices)),
  )


def _length(config, num_examples):
  """(the `schedules.Epochs` of a run, its steps), by the examples there are."""
  epochs = schedules.Epochs(
    config.run.epoch_size or num_examples, config.data.batch_size
  )
  if config.run.num_epochs:
    return epochs, epochs.steps(config.run.num_epochs)
  return epochs, config.run.max_steps


def _learning_rate(optimizer, epochs, max_steps):
  """The function of `Run.learning_rate`."""
  steps_per_epoch = epochs.num_examples / epochs.batch_size
  return lambda step: schedules.learning_rate(
    optimizer, step, steps_per_epoch, max_steps
  )


def _model(config, context):
  """The net, with its first values, on the first device."""
  chosen = config.model
  # Keras takes an int32 seed; the codes take all 64 bits.
  seed = chosen.seed % 2**31
  with context.placement_scope():
    keras.utils.set_random_seed(seed)
    with (
      tf.device(context.exchange.devices[0]),
      precision.of_layers(chosen.dtype),
    ):
      model = nets.build(
        chosen.net,
        num_classes=context.data.num_classes,
        image_size=config.data.image_size,
        channels=context.data.channels,
        weight_decay=chosen.weight_decay,
        dropout_keep_prob=chosen.dropout_keep_prob,
        seed=seed,
        initializer=chosen.initializer,
      )
  if chosen.batch_norm_decay != -1:
    batch_norm.set_decay(model, chosen.batch_norm_decay)
  if config.devices.bn_statistics == 'synchronized':
    synchronized.synchronize(model)
  return model


def _layout(config, model):
  """The model's variables, those outside --trainable_scopes frozen."""
  plan = replicas.variables_of(model)
  names = plan.names[: len(plan.trainable)]
  trained = scopes.members(
    'trainable_scopes', config.start.trainable_scopes, config.model.net, names
  )
  return replicas.variables_of(model, trained.__contains__) if trained else plan


def _logits(names):
  """Those of all variables of the classifiers."""
  layers = 'logits', 'aux_logits'
  return frozenset(n for n in names if run_codecs.is_logits(n, layers))


def _codecs(config, plan, devices):
  """The `run_codecs.RunCodecs` that a configuration names."""
  # Where nothing travels between processes there is nothing to wait for.
  alone = config.cluster.exchange == cluster.TOWERS
  part_bytes = 0 if alone else config.cluster.bytes_per_bucket
  codes = config.codes.named(config.num_workers)
  return run_codecs.of(
    codes, part_bytes, plan, devices, config.devices.fragments
  )


def _training(config, context, built):
  """The `step.Training`; `built` is (model, layout of replicas, codec)."""
  model, plan, codec = built
  clip_norm = config.optimizer.clip_gradient_norm
  optimizer = config.optimizer.rule()._replace(clip_norm=clip_norm)
  copies = replicas.create(
    plan,
    optimizer,
    context.exchange.devices,
    scaling=loss_scaling.START if config.model.dtype == 'float16' else (),
    own_statistics=config.devices.bn_statistics == 'per_device',
    shared=states.shared(codec),
  )
  loss = passes.of_net(
    nets.of(config.model.net),
    config.model.label_smoothing,
    config.model.aux_loss_weight,
  )
  saves = config.devices.optimize_gradient_memory
  node_pass = passes.model_pass(
    model,
    plan,
    loss,
    decoupled=config.optimizer.decoupled_weight_decay,
    differentiate=recomputing.of(model) if saves else None,
    weight=_weight(config),
  )
  local, of_pass = None, ()
  if config.devices.local_steps > 1:
    local = _local_steps(config, codec, node_pass)
    node_pass = node_pass._replace(decay=passes.no_decay)
    of_pass = local.states([v.shape for v in plan.trainable])
  return steps.Training(
    accumulation.accumulated(
      node_pass, config.devices.gradient_accumulation_steps
    ),
    context.exchange,
    copies,
    states.MethodStates(codec, context.exchange, of_pass),
    optimizer,
    config.model.seed,
    local=local,
  )


def _local_steps(config, codec, node_pass):
  """The `local_steps.LocalSteps` of a run that has some."""
  devices = config.devices
  streams = devices.fragments > 1 or devices.overlap_steps > 0
  return local_steps.LocalSteps(
    devices.steps_of_turn,
    config.optimizer.inner_rule(),
    config.optimizer.outer_learning_rate,
    node_pass.decay,
    fragments.members(codec) if streams else (),
    devices.overlap_steps,
    devices.mixing_factor,
  )


def _weight(config):
  """What a worker's examples count, where the devices have weights."""
  if not config.devices.weights:
    return None
  mean_share = config.data.batch_size / config.num_workers
  return functools.partial(shares_lib.weight, mean_share)


def _regularization(training):
  """A function of nothing: the L2 terms of the present parameters."""

  def regularization():
    parameters = training.replicas[0].trainable
    return training.node_pass.regularization(
      [tf.convert_to_tensor(v) for v in parameters]
    )

  return tf.function(regularization)


def _stored_layout(config, context, max_steps, shares):
  """The `checkpoints.Layout` of the run's checkpoints."""
  save_tower = config.devices.save_tower
  places = (
    list(range(len(context.local_devices)))
    if save_tower < 0
    else [context.exchange.device_of(save_tower)]
  )
  must_keep = options.values(config, 'on_resume', options.KEPT) | {
    'num_classes': context.data.num_classes,
    'optimizer': config.optimizer.name,
  }
  if config.devices.bn_statistics == 'per_device':
    must_keep['num_devices'] = len(context.local_devices)
  may_change = options.values(config, 'on_resume', options.TOLD) | {
    'codec': config.codes.named(config.num_workers).code.name,
    'num_workers': config.num_workers,
    '--optimizer': config.optimizer.optimizer,
    'data': context.data.digest,
    'max_steps': max_steps,
    # What was measured changes bits, not how it was asked for.
    'device_weights': ','.join(map(str, shares or ())),
  }
  if not schedules.needs_max_steps(config.optimizer):
    # A longer run takes the same steps.
    del may_change['max_steps']
  return checkpoints.Layout(
    net=config.model.net,
    num_classes=context.data.num_classes,
    optimizer=config.optimizer.name,
    num_devices=len(context.local_devices),
    num_workers=config.num_workers,
    places=places,
    max_steps=max_steps,
    batch_size=config.data.batch_size,
    dtype=config.model.dtype,
    bn_statistics=config.devices.bn_statistics,
    must_keep=must_keep,
    may_change=may_change,
  )
