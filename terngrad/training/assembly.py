"""Assembles a run from its configuration, without writing files."""

import dataclasses
from collections.abc import Callable
from collections.abc import Sequence

import keras

from slim.nets import factory as nets
from terngrad.checkpoint import checkpoints
from terngrad.checkpoint import scopes
from terngrad.checkpoint import stored_states
from terngrad.cluster import coordination
from terngrad.cluster import devices as devices_lib
from terngrad.codec import method
from terngrad.config import cluster
from terngrad.config import options
from terngrad.config import training as training_options
from terngrad.passes import accumulation
from terngrad.passes import compiling
from terngrad.passes import local_steps
from terngrad.passes import recomputing
from terngrad.passes import turns
from terngrad.reduce import fragments
from terngrad.reduce import gradients
from terngrad.reduce import states
from terngrad.reduce import weight_decay
from terngrad.step import loss_scaling
from terngrad.step import model_variables
from terngrad.step import passes
from terngrad.step import replicas
from terngrad.step import schedules
from terngrad.step import step as steps
from terngrad.step import synchronized
from terngrad.training import batches
from terngrad.training import building
from terngrad.training import device_speeds
from terngrad.training import epoch_scores
from terngrad.training import evaluation
from terngrad.training import execution
from terngrad.training import run as run_lib
from terngrad.training import run_codecs
from terngrad.training import shares as shares_lib

# Names of the classifier layers.
_LOGITS = 'logits', 'aux_logits'


def assemble(
  config: training_options.TrainConfig,
  context: execution.ExecutionContext | None = None,
) -> run_lib.Run:
  """Builds the model, the replicas, the codecs and the traced steps of a run.

  Args:
    config: a validated configuration.
    context: exchange, data and hooks; None for those of `process_context`.

  Raises:
    errors.ConfigError, slim.errors.DataError: a file, a device or a process is
      missing, or options contradict the data or the network.
  """
  context = context or process_context(config)
  devices_lib.keep_order_of_sums()
  devices = config.devices
  model = building.build_net(
    config.model, config.data.image_size, devices.is_synchronized, context
  )
  plan = _sort_variables(config, model)
  codecs = _codecs(config, plan, context.exchange.devices)
  codec = codecs.codec
  training = _training(config, context, (model, plan, codec))
  _assert_same(config, context, plan, codecs)
  shares = _shares(config, context, training)
  names = replicas.variable_names(plan, training.replicas[0])
  parameters = names[: len(plan.trainable)]
  local_devices = context.exchange.local_devices
  epochs, max_steps = _length(config, context.data.num_examples)
  return run_lib.Run(
    context=context,
    shares=shares,
    epochs=epochs,
    max_steps=max_steps,
    model=model,
    score=_scorer(config, model, context),
    optimizer=config.optimizer,
    replicas=tuple(training.replicas[i] for i in local_devices),
    names=names,
    parameters=parameters,
    logits=frozenset(n for n in names if run_codecs.is_logits(n, _LOGITS)),
    order=plan.order,
    codec=codec,
    float_codec=codecs.in_float,
    coded_step=_step(context, training, codec),
    float_step=_step(context, training, codecs.in_float),
    warm_up=tuple(
      run_lib.WarmUpStage(*stage, _step(context, training, stage[1]))
      for stage in codecs.warm_up
    ),
    decay=weight_decay.WeightDecay.of(plan.trainable),
    layout=_stored_layout(config, context, max_steps, shares),
    method_states=names[len(names) - len(states.shared(codec)) :],
    store=stored_states.Store(training.states, context.exchange, parameters),
    hooks=context.hooks,
    compiling=_decide_compiling(config, model, context).describe(),
  )


def _assert_same(
  config: training_options.TrainConfig,
  context: execution.ExecutionContext,
  plan: model_variables.ModelVariables,
  codecs: run_codecs.RunCodecs,
) -> None:
  """Raises `errors.ConfigError` unless all processes train the same run."""
  coordination.assert_same(
    context.exchange,
    options.values(config, 'shared', options.RUN, options.WORKERS),
    codecs=codecs.names,
    variables=len(plan.names),
    elements=codecs.codec.num_elements,
    num_examples=context.data.num_examples,
    num_classes=context.data.num_classes,
  )


def _scorer(
  config: training_options.TrainConfig,
  model: keras.Model,
  context: execution.ExecutionContext,
) -> Callable[[], dict[str, float]]:
  """Returns the scorer of --eval_subsets; it returns {} without subsets."""
  subsets = {
    name: evaluation.open_subset(config.data, config.model.net, name)
    for name in dict.fromkeys(config.run.eval_subsets)
  }
  score = epoch_scores.scorer(config.data.data_dir, subsets, model, context)
  return score if subsets else dict


def process_context(
  config: training_options.TrainConfig,
) -> execution.ExecutionContext:
  """Returns the context of this process in a run without parameter servers.

  Blocks until all processes have joined. Call it before TensorFlow initializes
  its devices: afterwards the CPU cannot be split into logical devices.

  Raises:
    errors.ConfigError, slim.errors.DataError: a device, a process or the data
      is missing.
  """
  workers, chosen = config.num_workers, config.cluster
  listed = config.devices.devices
  names = devices_lib.device_names(listed) if listed else ()
  exchange = coordination.join(
    *(chosen, config.devices.count, workers, names),
    config.devices.devices_per_worker,
  )
  local = range(exchange.first, exchange.first + exchange.num_local_workers)
  benchmark = config.run.benchmark_mode
  hooks = execution.Hooks(
    chosen.tasks, chosen.step_timeout + coordination.GRACE_SECONDS
  )
  hooks.runs_ahead = exchange.group is None and devices_lib.types(
    exchange.devices
  ) == {'GPU'}
  return execution.ExecutionContext(
    exchange,
    batches.open_data(config.data, config.model, workers, benchmark, local),
    hooks,
  )


def _step(
  context: execution.ExecutionContext,
  training: steps.Training,
  codec: gradients.GradientCodec,
) -> steps.Step:
  """Returns the traced step of a codec, or one step per fragment, in turn."""
  traced = []
  for turn in range(codec.num_fragments):
    if isinstance(training.local, local_steps.TrainerLocalSteps):
      local = dataclasses.replace(training.local, fragment=turn)
      training = training._replace(local=local)
    traced.append(
      context.make_step(training, fragments.step_codec(codec, turn))
    )
  return traced[0] if len(traced) == 1 else turns.FragmentSteps(traced)


def _shares(
  config: training_options.TrainConfig,
  context: execution.ExecutionContext,
  training: steps.Training,
) -> tuple[int, ...] | None:
  """Examples of each worker in a batch; None without --device_weights."""
  weights, workers = config.devices.weights, config.num_workers
  if not weights:
    return None
  batch_size, size = config.data.batch_size, config.data.image_size
  if isinstance(weights, str):
    weights = device_speeds.weights(
      training, (batch_size // workers, size, size, context.data.channels)
    )
  return shares_lib.divide(
    batch_size,
    shares_lib.worker_weights(weights, workers, len(context.exchange.devices)),
  )


def _length(
  config: training_options.TrainConfig, num_examples: int
) -> tuple[schedules.Epochs, int]:
  """Returns the epochs of a run and its number of steps."""
  epochs = schedules.Epochs(
    config.run.epoch_size or num_examples, config.data.batch_size
  )
  count = config.run.num_epochs
  return epochs, epochs.steps(count) if count else config.run.max_steps


def _sort_variables(
  config: training_options.TrainConfig, model: keras.Model
) -> model_variables.ModelVariables:
  """Sorts the model's variables; freezes those outside --trainable_scopes."""
  plan = model_variables.variables_of(model)
  names = plan.names[: len(plan.trainable)]
  trained = scopes.members(
    'trainable_scopes', config.start.trainable_scopes, config.model.net, names
  )
  return (
    model_variables.variables_of(model, trained.__contains__)
    if trained
    else plan
  )


def _codecs(
  config: training_options.TrainConfig,
  plan: model_variables.ModelVariables,
  devices: Sequence[str],
) -> run_codecs.RunCodecs:
  """Builds the codecs that a configuration names."""
  # Parts overlap communication with the backward pass. One process does not
  # communicate.
  is_alone = config.cluster.exchange == cluster.TOWERS
  return run_codecs.build(
    config.codes.methods(config.num_workers),
    0 if is_alone else config.cluster.bytes_per_bucket,
    plan,
    devices,
    config.devices.fragments,
  )


def _training(
  config: training_options.TrainConfig,
  context: execution.ExecutionContext,
  built: tuple[
    keras.Model, model_variables.ModelVariables, gradients.GradientCodec
  ],
) -> steps.Training:
  """Builds the replicas, the states and the pass that a step trains with."""
  model, plan, codec = built
  devices, exchange = config.devices, context.exchange
  optimizer = config.optimizer.rule().with_clip_norm(
    config.optimizer.clip_gradient_norm
  )
  copies = replicas.create(
    plan,
    optimizer,
    exchange.devices,
    scaling=loss_scaling.START if config.model.dtype == 'float16' else (),
    local_statistics=devices.bn_statistics == 'per_device',
    shared=states.shared(codec),
  )
  saves = devices.optimize_gradient_memory
  kind = recomputing.RecomputedPass if saves else passes.ModelPass
  mean_share = config.data.batch_size / config.num_workers
  node_pass: passes.Pass = kind(
    model,
    plan,
    passes.net_loss(
      nets.find_net(config.model.net),
      config.model.label_smoothing,
      config.model.aux_loss_weight,
    ),
    decoupled=config.optimizer.decoupled_weight_decay,
    mean_share=mean_share if devices.weights else None,
  )
  if _decide_compiling(config, model, context).compiles:
    node_pass = compiling.CompiledPass(node_pass)
  local: local_steps.TrainerLocalSteps | None = None
  pass_states: Sequence[method.State] = ()
  if devices.local_steps > 1:
    specs = run_codecs.variable_specs(plan)
    local = building.build_local(
      devices, config.optimizer, codec, node_pass, specs
    )
    node_pass = node_pass.without_decay()
    pass_states = local.states([v.shape for v in plan.trainable])
  node_pass = accumulation.accumulate(
    node_pass, devices.gradient_accumulation_steps
  )
  return steps.Training(
    node_pass,
    exchange,
    copies,
    states.MethodStates(codec, exchange, pass_states),
    optimizer,
    config.model.seed,
    synchronized.Synchronization(exchange) if devices.is_synchronized else None,
    local,
    compiles=not local and compiling.allows_whole_step(node_pass, exchange),
  )


def _decide_compiling(
  config: training_options.TrainConfig,
  model: keras.Model,
  context: execution.ExecutionContext,
) -> compiling.Decision:
  """Decides whether XLA compiles the passes of a run."""
  devices = config.devices
  return compiling.decide(
    devices.jit_compile, model, context.exchange, devices.compiles_passes
  )


def _stored_layout(
  config: training_options.TrainConfig,
  context: execution.ExecutionContext,
  max_steps: int,
  shares: Sequence[int] | None,
) -> checkpoints.Layout:
  """Describes the checkpoints of the run."""
  save_tower, exchange = config.devices.save_tower, context.exchange
  num_devices = len(exchange.local_devices)
  must_keep = options.values(config, 'on_resume', options.REFUSED) | {
    'num_classes': context.data.num_classes,
    'optimizer': config.optimizer.name,
  }
  if config.devices.bn_statistics == 'per_device':
    must_keep['num_devices'] = num_devices
  if config.devices.local_steps > 1:
    must_keep['inner_optimizer'] = config.optimizer.inner_name
  if tokenizer := context.data.tokenizer:
    must_keep[checkpoints.TOKENIZER] = tokenizer
  may_change = options.values(config, 'on_resume', options.LOGGED) | {
    'codec': config.codes.methods(config.num_workers).code.name,
    'num_workers': config.num_workers,
    '--optimizer': config.optimizer.optimizer,
    'data': context.data.digest,
    'max_steps': max_steps,
    # The shares change bits, whether they were given or measured.
    'device_weights': ','.join(map(str, shares or ())),
  }
  if not schedules.needs_max_steps(config.optimizer):
    # Then the learning rate does not depend on max_steps, so the first steps
    # of a longer run are the same.
    del may_change['max_steps']
  return checkpoints.Layout(
    net=config.model.net,
    num_classes=context.data.num_classes,
    optimizer=config.optimizer.name,
    num_devices=num_devices,
    num_workers=config.num_workers,
    places=[exchange.device_of(save_tower)]
    if save_tower >= 0
    else [*range(num_devices)],
    max_steps=max_steps,
    batch_size=config.data.batch_size,
    dtype=config.model.dtype,
    bn_statistics=config.devices.bn_statistics,
    must_keep=must_keep,
    may_change=may_change,
  )
