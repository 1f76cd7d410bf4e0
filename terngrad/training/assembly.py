"""Puts a run together from its configuration; writes nothing."""

from collections.abc import Callable
from typing import NamedTuple

import keras
import tensorflow as tf

from slim.datasets import factory as datasets
from slim.nets import factory as nets
from terngrad import native
from terngrad.codec import accelerated
from terngrad.codec import gradients
from terngrad.codec import policy
from terngrad.codec import registry
from terngrad.training import accumulation
from terngrad.training import checkpoints
from terngrad.training import loss_scaling
from terngrad.training import losses
from terngrad.training import nodes
from terngrad.training import precision
from terngrad.training import replicas
from terngrad.training import scopes
from terngrad.training import step as steps
from terngrad.training import together


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
    coded_step: the traced step, see `step.make_train_step`.
    float_step: the same with float32 gradients.
    regularization: returns the sum of the L2 terms of the present parameters,
      float32 [].
    layout: `checkpoints.Layout`.
    exchange: `exchange.towers.Towers` or `exchange.collective.Collective`.
  """

  batches: Callable
  num_examples: int
  replicas: tuple
  names: list
  parameters: list
  logits: frozenset
  order: tuple
  codec: gradients.GradientCodec
  coded_step: Callable
  float_step: Callable
  regularization: Callable
  layout: checkpoints.Layout
  exchange: object


def assemble(config):
  """Builds model, replicas, codec and step.

  Args:
    config: a valid `config.TrainConfig`.

  Returns:
    A `Run`.

  Raises:
    errors.ConfigError, slim.errors.DataError: something is not there.
  """
  # First of all: the CPU can be split only before TensorFlow is used.
  # No more devices than nodes: each has a node.
  exchange = together.join(config)
  places = exchange.devices
  open_batches, num_examples, num_classes, channels = _data(config, exchange)
  # Keras takes an int32 seed; the codes take all 64 bits.
  keras.utils.set_random_seed(config.seed % 2**31)
  with tf.device(places[0]), precision.of_layers(config.dtype):
    model = nets.build(
      config.net,
      num_classes=num_classes,
      image_size=config.image_size,
      channels=channels,
      weight_decay=config.weight_decay,
      dropout_keep_prob=config.dropout_keep_prob,
      seed=config.seed % 2**31,
    )
  optimizer = config.update_rule()
  optimizer = optimizer._replace(clip_norm=config.clip_gradient_norm)
  plan = _layout(config, model)
  copies = replicas.create(
    plan,
    optimizer,
    places,
    scaling=loss_scaling.START if config.dtype == 'float16' else (),
    own_statistics=config.bn_statistics == 'per_device',
  )
  node_pass = accumulation.accumulated(
    nodes.model_pass(
      model,
      plan,
      losses.of_net(
        nets.NETS[config.net], config.label_smoothing, config.aux_loss_weight
      ),
      decoupled=config.decoupled_weight_decay,
    ),
    config.gradient_accumulation_steps,
  )
  codec, float_codec = _codecs(config, plan, places)
  together.check_same(
    config,
    exchange,
    codecs=[bucket.codec.name for bucket in codec.buckets],
    variables=len(plan.names),
    elements=codec.num_elements,
    num_examples=num_examples,
    num_classes=num_classes,
  )

  def make(chosen):
    return steps.make_train_step(
      node_pass, chosen, exchange, copies, optimizer, config.seed
    )

  names = replicas.variable_names(plan, copies[0])
  stored = (
    list(range(len(places)))
    if config.save_tower < 0
    else [exchange.place_of(config.save_tower)]
  )
  return Run(
    batches=open_batches,
    num_examples=num_examples,
    replicas=copies,
    names=names,
    parameters=names[: len(copies[0].trainable)],
    logits=frozenset(
      name for name in names if is_logits(name, ('logits', 'aux_logits'))
    ),
    order=plan.order,
    codec=codec,
    coded_step=make(codec),
    float_step=make(float_codec),
    regularization=tf.function(
      lambda: node_pass.regularization(
        [tf.convert_to_tensor(v) for v in copies[0].trainable]
      )
    ),
    layout=checkpoints.Layout(
      net=config.net,
      num_classes=num_classes,
      optimizer=config.optimizer_name,
      num_devices=len(places),
      num_workers=config.num_workers,
      places=stored,
      max_steps=config.max_steps,
      batch_size=config.batch_size,
      seed=config.seed,
      dataset_name=config.dataset_name,
      subset=config.subset,
      codec=config.gradient_code().name,
      dtype=config.dtype,
      bn_statistics=config.bn_statistics,
      trainable_scopes=config.trainable_scopes,
    ),
    exchange=exchange,
  )


def is_logits(name, layers=('logits',)):
  """True for variables of the final classifier, the layer named 'logits'."""
  return name.split('/')[0] in layers


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
  plain = registry.identity()
  rules = [(policy.smaller_than(config.size_to_binarize), plain)]
  if not config.quantize_logits:
    rules.append((policy.is_logits, plain))
  rules.append((policy.always, config.gradient_code()))
  codecs = policy.policy(rules, specs)
  if all(place.startswith('/CPU') for place in places) and native.available():
    codecs = accelerated.accelerate(codecs)
  return (
    gradients.gradient_codec(specs, codecs),
    gradients.gradient_codec(specs, [plain] * len(specs)),
  )


def _data(config, exchange):
  """(batches, examples in an epoch, classes, channels); see `Run`."""
  dataset = datasets.DATASETS.get(config.dataset_name)
  if config.benchmark_mode:
    net = nets.NETS[config.net]
    classes = (dataset and dataset.num_classes) or 1000
    channels = dataset.channels if dataset else net.default_channels
    return (
      lambda step: _constant_batches(config, exchange, classes, channels),
      1281167,
      classes,
      channels,
    )

  share = config.batch_size // config.num_workers
  rows = (share * exchange.first, share * (exchange.first + exchange.own))

  def load(step):
    stream, split = datasets.load(
      config.dataset_name,
      config.data_dir,
      config.subset,
      datasets.Delivery(
        image_size=config.image_size,
        batch_size=config.batch_size,
        training=True,
        seed=config.seed,
        start=step * config.batch_size,
        shuffle_buffer=1024 * config.input_queue_memory_factor,
        net=config.net,
        preprocessing=config.preprocessing,
        labels_offset=config.labels_offset,
        rows=None if exchange.group is None else rows,
      ),
    )
    return stream.map(lambda *batch: _split(exchange.own, share, *batch)), split

  # Opens once, so that missing files are found before anything is written.
  _, split = load(0)
  return (
    lambda step: iter(load(step)[0]),
    split.num_examples,
    split.num_classes,
    split.channels,
  )


def _constant_batches(config, exchange, classes, channels):
  """Images of 0.5 and random labels, the same batch for ever."""
  size = config.image_size
  images, labels = _split(
    config.num_workers,
    config.batch_size // config.num_workers,
    tf.fill([config.batch_size, size, size, channels], 0.5),
    tf.random.stateless_uniform(
      [config.batch_size], [config.seed % 2**31, 0], 0, classes, tf.int32
    ),
  )
  own = slice(exchange.first, exchange.first + exchange.own)
  batch = images[own], labels[own]
  return iter(lambda: batch, None)


def _split(workers, share, images, labels):
  """Deals examples to workers in equal, consecutive parts."""
  return (
    tf.reshape(images, [workers, share, *images.shape[1:]]),
    tf.reshape(labels, [workers, share]),
  )
