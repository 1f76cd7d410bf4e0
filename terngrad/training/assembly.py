"""Puts a run together from its configuration; writes nothing."""

import dataclasses

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
from terngrad.config import devices as device_options
from terngrad.config import options
from terngrad.config import training as training_options
from terngrad.passes import accumulation
from terngrad.passes import local_steps
from terngrad.passes import recomputing
from terngrad.reduce import fragments
from terngrad.reduce import gradients
from terngrad.reduce import programs
from terngrad.reduce import states
from terngrad.step import loss_scaling
from terngrad.step import passes
from terngrad.step import precision
from terngrad.step import replicas
from terngrad.step import schedules
from terngrad.step import step as steps
from terngrad.step import synchronized
from terngrad.step import traced_step
from terngrad.training import batches
from terngrad.training import device_speeds
from terngrad.training import evaluation
from terngrad.training import execution
from terngrad.training import process_context
from terngrad.training import run as run_lib
from terngrad.training import run_codecs
from terngrad.training import shares as shares_lib


def assemble(
  config: training_options.TrainConfig,
  context: execution.ExecutionContext | None = None,
) -> run_lib.Run:
  """Builds model, replicas, codec and step.

  Args:
    config: a valid one.
    context: where the run takes place; None: `of_this_process`.

  Raises:
    errors.ConfigError, slim.errors.DataError: something is not there.
  """
  context = context or of_this_process(config)
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
  shares = _shares(config, context, training)
  names = replicas.variable_names(plan, training.replicas[0])
  parameters = names[: len(plan.trainable)]
  epochs, max_steps = _length(config, context.data.num_examples)
  return run_lib.Run(
    context=context,
    shares=shares,
    epochs=epochs,
    max_steps=max_steps,
    model=model,
    scorer=_scorer(config, model, context),
    optimizer=config.optimizer,
    replicas=tuple(training.replicas[index] for index in context.local_devices),
    names=names,
    parameters=parameters,
    logits=_logits(names),
    order=plan.order,
    codec=codec,
    float_codec=codecs.in_float,
    coded_step=_step(context, training, codec),
    float_step=_step(context, training, codecs.in_float),
    warm_up=tuple(
      run_lib.Stage(*one, _step(context, training, one[1]))
      for one in codecs.first
    ),
    decay=programs.WeightDecay(plan.trainable),
    layout=_stored_layout(config, context, max_steps, shares),
    method_states=names[len(names) - len(states.shared(codec)) :],
    store=stored_states.Store(training.states, context.exchange, parameters),
    hooks=context.hooks,
  )


def _scorer(
  config: training_options.TrainConfig,
  model: keras.Model,
  context: execution.ExecutionContext,
) -> evaluation.Scorer | None:
  """What scores between steps; None where nothing is to be scored."""
  if not config.run.eval_subsets:
    return None
  return evaluation.Scorer(config, model, context)


def of_this_process(
  config: training_options.TrainConfig,
) -> process_context.ProcessContext:
  """The context of a run without parameter servers.

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
  is_synchronized = config.devices.bn_statistics == 'synchronized'
  return process_context.ProcessContext(
    exchange,
    batches.open_data(config.data, config.model, workers, benchmark, own),
    process_context.ProcessHooks(
      chosen.tasks, chosen.step_timeout + coordination.GRACE_SECONDS
    ),
    synchronized.Synchronization(exchange) if is_synchronized else None,
  )


def _step(
  context: execution.ExecutionContext,
  training: steps.Training,
  codec: gradients.GradientCodec,
) -> steps.Step:
  """The traced step of a codec, or those of its fragments in turn."""
  made = []
  for turn in range(codec.num_fragments):
    if training.local:
      local = dataclasses.replace(training.local, turn=turn)
      training = training._replace(local=local)
    made.append(context.make_step(training, fragments.of_step(codec, turn)))
  return traced_step.in_turn(made)


def _shares(config, context, training):
  """Examples of each worker in a batch, where the devices have weights."""
  weights, workers = config.devices.weights, config.num_workers
  if not weights:
    return None
  batch_size, size = config.data.batch_size, config.data.image_size
  if weights == device_options.AUTO:
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
  optimizer = config.optimizer.rule().clipped(
    config.optimizer.clip_gradient_norm
  )
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
  kind = recomputing.RecomputedPass if saves else passes.ModelPass
  mean_share = config.data.batch_size / config.num_workers
  node_pass = kind(
    model,
    plan,
    loss,
    decoupled=config.optimizer.decoupled_weight_decay,
    mean_share=mean_share if config.devices.weights else None,
  )
  local, of_pass = None, ()
  if config.devices.local_steps > 1:
    local = _local_steps(config, codec, node_pass)
    node_pass = node_pass.without_decay()
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
