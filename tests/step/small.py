"""Small trainings: nets, batches and runs of a few steps, in this process."""

import dataclasses
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from terngrad.codec import policy
from terngrad.codec.methods import registry
from terngrad.exchange import device_groups
from terngrad.exchange import towers
from terngrad.passes import accumulation
from terngrad.passes import compiling
from terngrad.passes import inner_optimizers
from terngrad.passes import local_steps
from terngrad.passes import recomputing
from terngrad.passes import turns
from terngrad.reduce import bucketing
from terngrad.reduce import fragments as fragments_lib
from terngrad.reduce import parts as parts_lib
from terngrad.reduce import states
from terngrad.step import model_variables
from terngrad.step import optimizers
from terngrad.step import passes
from terngrad.step import replicas
from terngrad.step import step as steps
from terngrad.step import synchronized
from terngrad.step import whole_step

SIZE = 8


def dense_net(seed=3):
  """Two dense layers with L2."""
  return _classifier(
    seed,
    lambda init: [
      keras.layers.Flatten(),
      keras.layers.Dense(
        12,
        activation='relu',
        kernel_initializer=init(1),
        kernel_regularizer=keras.regularizers.L2(0.01),
        name='fc',
      ),
    ],
  )


def conv_net(seed=3, dropout=0.0):
  """Convolution, batch normalisation and, if asked for, dropout."""
  return _classifier(
    seed,
    lambda init: [
      keras.layers.Conv2D(6, 3, kernel_initializer=init(1), name='conv'),
      keras.layers.BatchNormalization(name='bn'),
      keras.layers.ReLU(),
      *([keras.layers.Dropout(dropout, seed=9)] if dropout else []),
      keras.layers.Flatten(),
    ],
  )


def _classifier(seed, layers):
  def init(offset):
    return keras.initializers.GlorotUniform(seed=seed + offset)

  return keras.Sequential(
    [
      keras.Input((SIZE, SIZE, 1)),
      *layers(init),
      keras.layers.Dense(5, kernel_initializer=init(9), name='logits'),
    ],
    name='small',
  )


class Local(NamedTuple):
  """Local steps by their numbers; see `local_steps.TrainerLocalSteps`."""

  count: int
  inner: str = 'momentum'
  outer_rate: float = 1.0
  keeps: bool = False
  overlap: int = 0
  mixing: float = 0.5

  def __call__(self, decay, members):
    """The `local_steps.TrainerLocalSteps` of a training."""
    return local_steps.TrainerLocalSteps(
      self.count,
      inner_optimizers.parse(self.inner, 0.0),
      self.outer_rate,
      decay,
      members if self.keeps else (),
      self.overlap,
      self.mixing,
    )


class Training:
  """A net in training on logical CPU devices."""

  def __init__(
    self,
    build,
    *,
    devices,
    workers,
    codec='ternary',
    optimizer=None,
    batch=8,
    seed=11,
    loss=passes.PLAIN,
    decoupled=False,
    parts=1,
    scaling=(),
    local_statistics=False,
    trained=lambda name: True,
    exchange=None,
    part_bytes=0,
    synchronize=False,
    on_kernels=False,
    plain=(),
    local=None,
    fragments=1,
    recompute=False,
    names=None,
    on_gpus=False,
    per_worker=1,
    compiles=False,
    compiles_pass=False,
  ):
    self.model = build()
    if synchronize:
      synchronized.synchronize(self.model)
    self.plan = model_variables.variables_of(self.model, trained)
    self.optimizer = optimizer or optimizers.Momentum(0.9)
    names = names or tuple(f'/CPU:{i}' for i in range(devices))
    leaders = towers.Towers(names[::per_worker], workers)
    self.exchange = exchange or device_groups.make(leaders, names)
    specs = [
      policy.VariableSpec(name, tuple(variable.shape))
      for name, variable in zip(
        self.plan.names, self.plan.trainable, strict=False
      )
    ]
    coded = registry.method(codec, workers)
    as_it_is = registry.method('identity')
    code = bucketing.gradient_codec(
      specs, [as_it_is if spec.name in plain else coded for spec in specs]
    )
    if on_kernels:
      code = bucketing.on_kernels(code)
    if on_gpus:
      code = bucketing.on_gpus(code)
    code = fragments_lib.split(code, fragments_lib.strided(specs, fragments))
    self.codec = parts_lib.cut(code, part_bytes)
    self.replicas = replicas.create(
      self.plan,
      self.optimizer,
      names,
      scaling,
      local_statistics,
      states.shared(self.codec),
    )
    self.node_pass = accumulation.accumulate(
      (recomputing.RecomputedPass if recompute else passes.ModelPass)(
        self.model, self.plan, loss, decoupled
      ),
      parts,
    )
    if compiles_pass:
      self.node_pass = compiling.CompiledPass(self.node_pass)
    changes = {'compiles': compiles}
    if synchronize:
      changes['synchronization'] = synchronized.Synchronization(self.exchange)
    of_pass, made = (), None
    if local:
      made = local(self.node_pass.decay, fragments_lib.members(self.codec))
      of_pass = made.states([v.shape for v in self.plan.trainable])
      self.node_pass = self.node_pass.without_decay()
    self.states = states.MethodStates(self.codec, self.exchange, of_pass)

    def make_step(turn):
      if made:
        changes['local'] = dataclasses.replace(made, fragment=turn)
      training = steps.Training(
        self.node_pass,
        self.exchange,
        self.replicas,
        self.states,
        self.optimizer,
        seed,
        **changes,
      )
      of_turn = fragments_lib.step_codec(self.codec, turn)
      return whole_step.step_class(training, of_turn)(training, of_turn)

    self.turns = [make_step(turn) for turn in range(self.codec.num_fragments)]
    self.step = self.turns[0]
    if fragments > 1:
      self.step = turns.FragmentSteps(self.turns)
    self.shape = [workers, batch // workers]

  def run(self, count, first=0, rate=0.05):
    """Takes steps; returns the last result."""
    for number in range(first, first + count):
      images, labels = batch_of(number, self.shape)
      local = slice(
        self.exchange.first,
        self.exchange.first + self.exchange.num_local_workers,
      )
      result = self.take(number, images[local], labels[local], rate)
    return result

  def take(self, number, images, labels, rate=0.05):
    """Takes one step; returns its result."""
    return self.step.take(
      images,
      labels,
      tf.constant(number, tf.int64),
      tf.constant(rate),
      tf.constant(0.5),
    )

  def variables(self):
    """All that a step may change, seeds of dropout apart."""
    found = []
    for of_device in self.states.workers:
      for variables in of_device.values():
        found += variables
    for replica in self.replicas:
      found += replica.variables()
    return found

  def values(self, index=0):
    """All variables of a replica, as one array of bits."""
    parts = [v.numpy().ravel() for v in self.replicas[index].variables()]
    return np.concatenate(parts).view(np.uint32)


_made = {}


def at_its_start(build, **options):
  """A `Training` as it was made, which callers of equal options share.

  Tracing and compiling a step takes seconds, which this spends once.
  """
  # Optimizers hold dicts. The text names functions by their addresses, which
  # stay theirs while the options are kept.
  key = build, repr(sorted(options.items()))
  if key not in _made:
    training = Training(build, **options)
    start = [variable.numpy() for variable in training.variables()]
    _made[key] = training, start, options
  training, start, _ = _made[key]
  for variable, value in zip(training.variables(), start, strict=True):
    variable.assign(value)
  return training


def batch_of(number, shape):
  """The batch of a step, the same examples however it is dealt."""
  size = int(np.prod(shape))
  images = tf.random.stateless_normal([size, SIZE, SIZE, 1], [number, 5])
  labels = tf.random.stateless_uniform([size], [number, 6], 0, 5, tf.int32)
  images = tf.reshape(images, [*shape, SIZE, SIZE, 1])
  return images, tf.reshape(labels, shape)
