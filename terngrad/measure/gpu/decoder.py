"""Steps of a transformer decoder on random tokens."""

import functools
import itertools
from collections.abc import Callable
from collections.abc import Sequence
from typing import NamedTuple

import keras
import tensorflow as tf

from slim.nets import factory as nets
from terngrad.exchange import towers
from terngrad.measure import gradient_codecs
from terngrad.measure import step_table
from terngrad.reduce import states
from terngrad.step import model_variables
from terngrad.step import optimizers
from terngrad.step import passes
from terngrad.step import replicas
from terngrad.step import step as steps
from terngrad.training import run_codecs


class DecoderSize(NamedTuple):
  """A net of `slim.nets.gpt` and the size of its batch.

  Attributes:
    net: name of the net, with or without options.
    words: number of words in the vocabulary.
    length: tokens of an example.
    batch: examples of all nodes.
  """

  net: str = 'gpt_small'
  words: int = 257
  length: int = 256
  batch: int = 32


# 25.3 million parameters.
FULL = DecoderSize()
SMALL = DecoderSize('gpt_small:blocks=1,width=16,heads=2', 64, 8, 4)


def build(size: DecoderSize) -> keras.Model:
  """Builds a decoder: tokens int32 [b, length] to logits [b, length, words]."""
  return nets.build(size.net, num_classes=size.words)


def kinds(
  device: str, size: DecoderSize, codec: str, nodes: Sequence[int]
) -> dict[str, Callable[[], step_table.Step]]:
  """Returns the builders of the kinds of steps, as `step_table.kinds`."""
  build_step = functools.partial(_tower_step, device, size)
  built: dict[str, Callable[[], step_table.Step]] = {
    step_table.TOWERS: functools.partial(build_step, 'identity', 1)
  }
  for n in nodes:
    kind = step_table.coded_kind(codec, n)
    built[kind] = functools.partial(build_step, codec, n)
  for kind in step_table.KERAS_KINDS:
    is_compiled = kind == step_table.KERAS_COMPILED
    built[kind] = functools.partial(_keras_step, device, size, is_compiled)
  return built


def _examples(size: DecoderSize, nodes: int) -> tuple[tf.Tensor, tf.Tensor]:
  """Draws tokens and their successors, int32 [nodes, b, length].

  b is the share of a node.
  """
  drawn = tf.random.stateless_uniform(
    [size.batch, size.length + 1], [1, 1], 0, size.words, tf.int32
  )
  shape = [nodes, size.batch // nodes, size.length]
  return tf.reshape(drawn[:, :-1], shape), tf.reshape(drawn[:, 1:], shape)


def _keras_step(
  device: str, size: DecoderSize, is_compiled: bool
) -> step_table.Step:
  with tf.device(device):
    tokens, labels = _examples(size, 1)
    model = build(size)
    return step_table.keras_step(
      device, model, tokens[0], labels[0], is_compiled
    )


def _tower_step(
  device: str, size: DecoderSize, text: str, nodes: int
) -> step_table.Step:
  """Returns a function that launches one step of nodes on a device."""
  with tf.device(device):
    model = build(size)
    examples = _examples(size, nodes)
  plan = model_variables.variables_of(model)
  shapes = [tuple(v.shape) for v in model.trainable_variables]
  codec = run_codecs.on_devices(
    gradient_codecs.build(text, shapes, nodes), [device]
  )
  exchange, optimizer = towers.Towers((device,), nodes), optimizers.Momentum()
  copies = replicas.create(
    plan, optimizer, (device,), shared=states.shared(codec), averaged=False
  )
  training = steps.Training(
    passes.ModelPass(model, plan),
    exchange,
    copies,
    states.MethodStates(codec, exchange),
    optimizer,
    1,
  )
  step, counter = steps.TrainStep(training, codec), itertools.count()
  rates = tf.constant(1e-3), tf.constant(0.0)
  return lambda: step.take(
    *examples, tf.constant(next(counter), tf.int64), *rates
  )
