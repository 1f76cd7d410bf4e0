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
from terngrad.exchange import towers as exchange
from terngrad.training import checkpoints
from terngrad.training import devices
from terngrad.training import meter
from terngrad.training import nodes
from terngrad.training import optimizers
from terngrad.training import replicas
from terngrad.training import step as steps


class Habits(NamedTuple):
  """What a loop does besides its steps.

  Attributes:
    log_every: steps between two lines.
    line: takes (step, values), returns the line; see `meter.log_line`.
    save_secs: seconds between checkpoints, beside those of save_iter.
    observe_secs: seconds between histograms, beside those of save_iter.
    on_step: called after every step.
    before_save: called before every checkpoint; raises where replicas differ
      that the loop does not see.
  """

  log_every: int = 10
  line: Callable = meter.log_line
  save_secs: float = float('inf')
  observe_secs: float = float('inf')
  on_step: Callable = lambda: None
  before_save: Callable = lambda: None


class Surroundings(NamedTuple):
  """Where a run takes place.

  Attributes:
    places: device names, one a replica.
    towers: `exchange.Towers` of all workers.
    data: what `open_data` returns.
    make_step: takes (node_pass, codec, replicas, optimizer), returns a traced
      step; see `step.make_train_step`.
    own: the places whose replicas the loop saves and looks at.
    habits: `Habits`.
  """

  places: tuple
  towers: exchange.Towers
  data: tuple
  make_step: Callable
  own: range
  habits: Habits = Habits()


class Run(NamedTuple):
  """All that the training loop needs.

  Attributes:
    batches: takes a step, returns an iterator of (images [workers, b, ...],
      labels [workers, b]) from that step on.
    num_examples: examples in an epoch.
    replicas: tuple of `replicas.Replica`.
    names: of a replica's variables.
    parameters: names of the parameters, the first of `names`.
    logits: names of all variables of the logits layer.
    codec: `gradients.GradientCodec` of the coded steps.
    coded_step: the traced step, see `step.make_train_step`.
    float_step: the same with float32 gradients.
    regularization: returns the sum of the L2 terms of the present parameters,
      float32 [].
    layout: `checkpoints.Layout`.
    habits: `Habits`.
  """

  batches: Callable
  num_examples: int
  replicas: tuple
  names: list
  parameters: list
  logits: frozenset
  codec: gradients.GradientCodec
  coded_step: Callable
  float_step: Callable
  regularization: Callable
  layout: checkpoints.Layout
  habits: Habits = Habits()


def on_this_machine(config):
  """The `Surroundings` of towers."""
  # First of all: the CPU can be split only before TensorFlow is used.
  # No more devices than nodes: each has a node.
  places = devices.tower_devices(min(config.num_gpus, config.num_workers))
  towers = exchange.Towers(places, config.num_workers)

  def make_step(node_pass, codec, copies, optimizer):
    return steps.make_train_step(
      node_pass, codec, towers, copies, optimizer, config.seed
    )

  return Surroundings(
    places, towers, open_data(config), make_step, range(len(places))
  )


def assemble(config, surround=on_this_machine):
  """Builds model, replicas, codec and step.

  Args:
    config: a valid `config.TrainConfig`.
    surround: takes it, returns `Surroundings`.

  Returns:
    A `Run`.

  Raises:
    errors.ConfigError, slim.errors.DataError: something is not there.
  """
  around = surround(config)
  places = around.places
  open_batches, num_examples, num_classes, channels = around.data
  # Keras takes an int32 seed; the codes take all 64 bits.
  keras.utils.set_random_seed(config.seed % 2**31)
  with tf.device(places[0]):
    model = nets.build(
      config.net,
      num_classes=num_classes,
      image_size=config.image_size,
      channels=channels,
      weight_decay=config.weight_decay,
      dropout_keep_prob=config.dropout_keep_prob,
      seed=config.seed % 2**31,
    )
  optimizer = optimizers.OPTIMIZERS[config.optimizer](config.momentum)
  copies = replicas.create(model, optimizer, places)
  plan = replicas.layout(model)
  node_pass = nodes.model_pass(model, plan)
  codec, float_codec = _codecs(config, plan, places)

  def make(chosen):
    return around.make_step(node_pass, chosen, copies, optimizer)

  names = replicas.variable_names(plan, copies[0])
  stored = (
    list(range(len(around.own)))
    if config.save_tower < 0
    else [around.towers.place_of(config.save_tower)]
  )
  return Run(
    batches=open_batches,
    num_examples=num_examples,
    replicas=tuple(copies[place] for place in around.own),
    names=names,
    parameters=names[: len(copies[0].trainable)],
    logits=frozenset(name for name in names if is_logits(name)),
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
      optimizer=config.optimizer,
      num_devices=len(around.own),
      num_workers=config.num_workers,
      places=stored,
      max_steps=config.max_steps,
    ),
    habits=around.habits,
  )


def is_logits(name):
  """True for variables of the final classifier, the layer named 'logits'."""
  return name.split('/')[0] == 'logits'


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
  kinds = {tf.DeviceSpec.from_string(place).device_type for place in places}
  if kinds == {'CPU'} and native.available():
    codecs = accelerated.accelerate(codecs)
  return (
    gradients.gradient_codec(specs, codecs),
    gradients.gradient_codec(specs, [plain] * len(specs)),
  )


def open_data(config, part=(0, 1)):
  """(batches, examples in an epoch, classes, channels); see `Run`.

  Args:
    config: a valid `config.TrainConfig`.
    part: (worker, num_workers), which part of the examples to read.
  """
  dataset = datasets.DATASETS.get(config.dataset_name)
  if config.benchmark_mode:
    net = nets.NETS[config.net]
    classes = (dataset and dataset.num_classes) or 1000
    channels = dataset.channels if dataset else net.default_channels
    return (
      lambda step: _constant_batches(config, classes, channels),
      1281167,
      classes,
      channels,
    )

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
        worker=part[0],
        num_workers=part[1],
      ),
    )
    return stream.map(lambda *batch: _split(config, *batch)), split

  # Opens once, so that missing files are found before anything is written.
  _, split = load(0)
  return (
    lambda step: iter(load(step)[0]),
    split.num_examples,
    split.num_classes,
    split.channels,
  )


def _constant_batches(config, classes, channels):
  """Images of 0.5 and random labels, the same batch for ever."""
  size = config.image_size
  batch = _split(
    config,
    tf.fill([config.batch_size, size, size, channels], 0.5),
    tf.random.stateless_uniform(
      [config.batch_size], [config.seed % 2**31, 0], 0, classes, tf.int32
    ),
  )
  return iter(lambda: batch, None)


def _split(config, images, labels):
  """Deals a batch to the workers in equal, consecutive parts."""
  share = config.batch_size // config.num_workers
  parts = [config.num_workers, share]
  return (
    tf.reshape(images, [*parts, *images.shape[1:]]),
    tf.reshape(labels, parts),
  )
