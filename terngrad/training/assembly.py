"""Puts a run together from its configuration; writes nothing."""

from collections.abc import Callable
from typing import NamedTuple

import keras
import tensorflow as tf

from slim.nets import factory as nets
from slim.nets.blocks import batch_norm
from terngrad import native
from terngrad.checkpoint import checkpoints
from terngrad.checkpoint import scopes
from terngrad.checkpoint import stored_states
from terngrad.codec import bucketing
from terngrad.codec import gradients
from terngrad.codec import parts
from terngrad.codec import policy
from terngrad.codec.methods import registry
from terngrad.config import cluster_config
from terngrad.config import options
from terngrad.step import loss_scaling
from terngrad.step import passes
from terngrad.step import precision
from terngrad.step import replicas
from terngrad.step import states
from terngrad.step import step as steps
from terngrad.step import synchronized
from terngrad.training import accumulation
from terngrad.training import surroundings


class Run(NamedTuple):
  """All that the training loop needs.

  Attributes:
    batches: takes a step, returns an iterator of (images [workers, b, ...],
      labels [workers, b]) from that step on.
    num_examples: examples in an epoch.
    replicas: tuple of `replicas.Replica`.
    names: of a replica's variables.
    parameters: names of the parameters, the first of `names`.
    logits: names of all variables of the classifiers, auxiliary ones too.
    order: names of the net's variables, layer by layer.
    codec: `gradients.GradientCodec` of the coded steps.
    float_codec: the same with float32 gradients.
    coded_step: the traced step, see `step.make_train_step`.
    float_step: the same with float32 gradients.
    regularization: returns the sum of the L2 terms of the present parameters,
      float32 [].
    layout: `checkpoints.Layout`.
    method_states: names of what methods share, the last of `names`.
    store: `stored_states.Store`.
    exchange: see `step.Training`.
    habits: `surroundings.Habits`.
  """

  batches: Callable
  num_examples: int
  replicas: tuple
  names: list
  parameters: list
  logits: frozenset
  order: tuple
  codec: gradients.GradientCodec
  float_codec: gradients.GradientCodec
  coded_step: Callable
  float_step: Callable
  regularization: Callable
  layout: checkpoints.Layout
  method_states: list
  store: stored_states.Store
  exchange: object
  habits: surroundings.Habits


def assemble(config, surround=surroundings.of_this_process):
  """Builds model, replicas, codec and step.

  Args:
    config: a valid `config.TrainConfig`.
    surround: takes it, returns `surroundings.Surroundings`.

  Returns:
    A `Run`.

  Raises:
    errors.ConfigError, slim.errors.DataError: something is not there.
  """
  around = surround(config)
  places = around.exchange.devices
  with around.dealing():
    model = _model(config, around.data, places[0])
  if config.bn_statistics == 'synchronized':
    synchronized.normalize_together(model)
  optimizer = config.update_rule()
  optimizer = optimizer._replace(clip_norm=config.clip_gradient_norm)
  plan = _layout(config, model)
  codec, float_codec = _codecs(config, plan, places)
  shared = states.shared(codec)
  copies = replicas.create(
    plan,
    optimizer,
    places,
    scaling=loss_scaling.START if config.dtype == 'float16' else (),
    own_statistics=config.bn_statistics == 'per_device',
    shared=shared,
  )
  node_pass = accumulation.accumulated(
    passes.model_pass(
      model,
      plan,
      passes.of_net(
        nets.NETS[config.net], config.label_smoothing, config.aux_loss_weight
      ),
      decoupled=config.decoupled_weight_decay,
    ),
    config.gradient_accumulation_steps,
  )
  around.check_same(
    codecs=[bucket.method.name for bucket in codec.buckets],
    variables=len(plan.names),
    elements=codec.num_elements,
    num_examples=around.data.num_examples,
    num_classes=around.data.num_classes,
  )

  remembered = states.MethodStates(codec, around.exchange)
  training = steps.Training(
    node_pass, around.exchange, copies, remembered, optimizer, config.seed
  )
  coded_step, float_step = (
    around.make_step(training, chosen) for chosen in (codec, float_codec)
  )
  names = replicas.variable_names(plan, copies[0])
  stored = (
    list(range(len(around.own)))
    if config.save_tower < 0
    else [around.exchange.place_of(config.save_tower)]
  )
  return Run(
    batches=around.data.batches,
    num_examples=around.data.num_examples,
    replicas=tuple(copies[place] for place in around.own),
    names=names,
    parameters=names[: len(copies[0].trainable)],
    logits=frozenset(
      name for name in names if is_logits(name, ('logits', 'aux_logits'))
    ),
    order=plan.order,
    codec=codec,
    float_codec=float_codec,
    coded_step=coded_step,
    float_step=float_step,
    regularization=tf.function(
      lambda: node_pass.regularization(
        [tf.convert_to_tensor(v) for v in copies[0].trainable]
      )
    ),
    layout=_checkpoint_layout(config, around, stored),
    method_states=names[len(names) - len(shared) :],
    store=stored_states.Store(
      remembered, codec, around.exchange, names[: len(copies[0].trainable)]
    ),
    exchange=around.exchange,
    habits=around.habits,
  )


def _checkpoint_layout(config, around, stored):
  """The `checkpoints.Layout` of the run, `stored` the devices it stores."""
  must_keep = options.values(config, 'on_resume', options.KEPT) | {
    'num_classes': around.data.num_classes,
    'optimizer': config.optimizer_name,
  }
  if config.bn_statistics == 'per_device':
    must_keep['num_devices'] = len(around.own)
  return checkpoints.Layout(
    net=config.net,
    num_classes=around.data.num_classes,
    optimizer=config.optimizer_name,
    num_devices=len(around.own),
    num_workers=config.num_workers,
    places=stored,
    max_steps=config.max_steps,
    dtype=config.dtype,
    bn_statistics=config.bn_statistics,
    must_keep=must_keep,
    may_change=options.values(config, 'on_resume', options.TOLD)
    | {
      'codec': config.gradient_code().name,
      'num_workers': config.num_workers,
      '--optimizer': config.optimizer,
    },
  )


def is_logits(name, layers=('logits',)):
  """True for variables of the final classifier, the layer named 'logits'."""
  return name.split('/')[0] in layers


def _model(config, data, place):
  """The net, with its first values, on a device."""
  # Keras takes an int32 seed; the codes take all 64 bits.
  seed = config.seed % 2**31
  keras.utils.set_random_seed(seed)
  with tf.device(place), precision.of_layers(config.dtype):
    model = nets.build(
      config.net,
      num_classes=data.num_classes,
      image_size=config.image_size,
      channels=data.channels,
      weight_decay=config.weight_decay,
      dropout_keep_prob=config.dropout_keep_prob,
      seed=seed,
    )
  if config.batch_norm_decay != -1:
    batch_norm.set_decay(model, config.batch_norm_decay)
  return model


def _layout(config, model):
  """The model's variables, those outside --trainable_scopes frozen."""
  plan = replicas.layout(model)
  names = plan.names[: len(plan.trainable)]
  trained = scopes.members(
    'trainable_scopes', config.trainable_scopes, config.net, names
  )
  return replicas.layout(model, trained.__contains__) if trained else plan


def _codecs(config, plan, places):
  """The codec of coded steps and that of float32 steps."""
  specs = [
    policy.VariableSpec(name, tuple(variable.shape), is_logits(name))
    for name, variable in zip(plan.names, plan.trainable, strict=False)
  ]
  plain = registry.method('identity')
  rules = [(policy.smaller_than(config.size_to_binarize), plain)]
  if not config.quantize_logits:
    rules.append((policy.is_logits, plain))
  rules.append((policy.always, config.gradient_code()))
  codec = bucketing.gradient_codec(specs, policy.policy(rules, specs))
  kinds = {tf.DeviceSpec.from_string(place).device_type for place in places}
  if kinds == {'GPU'}:
    codec = bucketing.on_gpus(codec)
  elif kinds == {'CPU'} and native.available():
    codec = bucketing.on_kernels(codec)
  # Where nothing travels between processes there is nothing to wait for.
  alone = config.exchange == cluster_config.TOWERS
  codec = parts.cut(codec, 0 if alone else config.bytes_per_bucket)
  return codec, bucketing.in_float(codec, plain)
