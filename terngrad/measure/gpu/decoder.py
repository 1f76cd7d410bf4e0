"""A small transformer decoder of Keras layers, and its steps.

Vaswani et al., Attention Is All You Need, https://arxiv.org/abs/1706.03762,
with normalization before each block and learned positions, as in GPT-2.
"""

import functools
import itertools
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import keras
import tensorflow as tf

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
  """The size of a decoder and of its batch.

  Attributes:
    words: number of words in the vocabulary.
    length: tokens of an example.
    width: numbers of a token between layers.
    layers: number of blocks.
    heads: attention heads of a block; they divide the width.
    batch: examples of all nodes.
  """

  words: int = 6144
  length: int = 256
  width: int = 512
  layers: int = 6
  heads: int = 8
  batch: int = 32


# 25.3 million parameters.
FULL = DecoderSize()
SMALL = DecoderSize(64, 8, 16, 1, 2, 4)


class _DensePass(passes.ModelPass):
  """The pass of a model with embeddings: their gradients become dense."""

  def differentiate(
    self, parameters: list[tf.Tensor], *arguments: Any
  ) -> tuple[list[tf.Tensor], tf.Tensor, list[tf.Tensor]]:
    """Differentiates a loss; see `passes.ModelPass.differentiate`."""
    found, *rest = super().differentiate(parameters, *arguments)
    dense = [
      tf.ensure_shape(tf.convert_to_tensor(gradient), parameter.shape)
      for gradient, parameter in zip(found, parameters, strict=True)
    ]
    return dense, *rest


def build(size: DecoderSize) -> keras.Model:
  """Builds a decoder: tokens int32 [b, length] to logits [b * length, words].

  The logits of an example's tokens follow each other, so that classification
  losses take them.
  """
  layers, ops = keras.layers, keras.ops
  tokens = keras.Input((size.length,), dtype='int32')
  index = ops.cumsum(ops.ones_like(tokens), axis=1) - 1
  x = layers.Embedding(size.words, size.width)(tokens)
  x = x + layers.Embedding(size.length, size.width)(index)
  for _ in range(size.layers):
    y = layers.LayerNormalization()(x)
    attention = layers.MultiHeadAttention(size.heads, size.width // size.heads)
    x = x + attention(y, y, use_causal_mask=True)
    y = layers.LayerNormalization()(x)
    y = layers.Dense(4 * size.width, activation='gelu')(y)
    x = x + layers.Dense(size.width)(y)
  logits = layers.Dense(size.words)(layers.LayerNormalization()(x))
  return keras.Model(tokens, ops.reshape(logits, (-1, size.words)))


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
  """Draws tokens [nodes, b, length] and their successors [nodes, b * length].

  Returns:
    Both int32; b is the share of a node.
  """
  drawn = tf.random.stateless_uniform(
    [size.batch, size.length + 1], [1, 1], 0, size.words, tf.int32
  )
  share = size.batch // nodes
  tokens = tf.reshape(drawn[:, :-1], [nodes, share, size.length])
  return tokens, tf.reshape(drawn[:, 1:], [nodes, share * size.length])


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
    _DensePass(model, plan),
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
