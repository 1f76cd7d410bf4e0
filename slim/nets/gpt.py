"""Decoder-only transformers, language models of tokens.

A block is x + attention(norm(x)), then x + perceptron(norm(x)), with RMS norms,
rotary positions, squared relus and no biases. The embedding is also the output
layer. At 257 tokens, the bytes and the end of a document, gpt_nano has about 1
million parameters and gpt_small about 25 million.

References:
  Radford et al., Language Models are Unsupervised Multitask Learners, 2019
  (norms before each layer, and the initial scale of layers that end a branch).
  Zhang and Sennrich, Root Mean Square Layer Normalization,
  https://arxiv.org/abs/1910.07467.
  So et al., Primer: Searching for Efficient Transformers for Language Modeling,
  https://arxiv.org/abs/2109.08668 (squared relu).
"""

import itertools
from typing import Any

import keras

from slim import errors
from slim.nets.blocks import tokens as token_layers

# Tokens of a training sequence.
SEQUENCE_LENGTH = 256
_STDDEV = 0.02  # of initial weights


def build(
  name: str,
  num_classes: int,
  *,
  blocks: int,
  width: int,
  heads: int,
  image_size: int = SEQUENCE_LENGTH,
  channels: int = 1,
  weight_decay: float = 0.0,
  dropout_keep_prob: float = 1.0,
  seed: int = 1,
) -> keras.Model:
  """Builds a transformer.

  Trainable parameters at 257 tokens: 1,017,344 for gpt_nano and 25,306,112 for
  gpt_small.

  Args:
    name: name of the model.
    num_classes: size of the vocabulary, >= 1.
    blocks: number of blocks, >= 1.
    width: number of elements of a token's representation; the perceptron has
      four times as many.
    heads: number of attention heads; a head has width / heads elements, an
      even number.
    image_size: not used, because these nets take sequences of any length.
    channels: not used.
    weight_decay: adds weight_decay * sum(w**2) / 2 to the losses for every
      kernel w, never for the embedding and the norms; 0 adds nothing.
    dropout_keep_prob: not used, because these nets have no dropout.
    seed: embedding and kernels use seeds seed + 1, + 2, ... in the order of the
      layers.

  Returns:
    A model from tokens, int32 [B, T] in [0, num_classes), to the logits of each
    next token, float32 [B, T, num_classes] under any precision policy.

  Raises:
    slim.errors.DataError: a size is invalid.
  """
  del image_size, channels, dropout_keep_prob
  if min(blocks, width, heads) < 1 or width % (2 * heads):
    raise errors.DataError(
      f'{name}: expected blocks, width and heads of 1 or more, and a width '
      f'that 2 * heads divides; received blocks={blocks}, width={width}, '
      f'heads={heads}. Write for example {name}:width=128,heads=4.'
    )
  make = _Layers(blocks, width, heads, weight_decay, seed)
  embedding = token_layers.TiedEmbedding(
    num_classes, width, make.initializer(_STDDEV), name='embedding'
  )
  tokens = keras.Input((None,), dtype='int32', name='tokens')
  x = embedding(tokens)
  for number in range(1, blocks + 1):
    x = make.attention(x, f'block{number}_attention')
    x = make.perceptron(x, f'block{number}_perceptron')
  logits = embedding(make.norm(x, 'norm'), reverse=True)
  return keras.Model(tokens, logits, name=name)


class _Layers:
  """Makes the layers of a net, each kernel with the next seed."""

  def __init__(
    self, blocks: int, width: int, heads: int, weight_decay: float, seed: int
  ) -> None:
    self._blocks, self._width, self._heads = blocks, width, heads
    self._weight_decay = weight_decay
    self._seeds = itertools.count(seed + 1)

  def initializer(self, stddev: float) -> keras.initializers.Initializer:
    return keras.initializers.RandomNormal(
      stddev=stddev, seed=next(self._seeds)
    )

  def attention(self, x: keras.KerasTensor, name: str) -> keras.KerasTensor:
    """Adds the attention of the normalized input."""
    y = self.norm(x, f'{name}_norm')
    y = self._dense(3 * self._width, f'{name}_qkv')(y)
    y = token_layers.CausalAttention(self._heads, name=name)(y)
    return self._add(x, y, name)

  def perceptron(self, x: keras.KerasTensor, name: str) -> keras.KerasTensor:
    """Adds two layers of the normalized input with a squared relu."""
    y = self.norm(x, f'{name}_norm')
    y = self._dense(4 * self._width, f'{name}_up', activation='relu')(y)
    y = keras.layers.Multiply(name=f'{name}_square')([y, y])
    return self._add(x, y, name)

  def norm(self, x: keras.KerasTensor, name: str) -> keras.KerasTensor:
    """Divides by the root mean square and scales each element."""
    return keras.layers.RMSNormalization(epsilon=1e-6, name=name)(x)

  def _add(
    self, x: keras.KerasTensor, y: keras.KerasTensor, name: str
  ) -> keras.KerasTensor:
    """Ends a branch; its kernels start smaller, so that the sum keeps size."""
    stddev = _STDDEV / (2 * self._blocks) ** 0.5
    y = self._dense(self._width, f'{name}_out', stddev)(y)
    return keras.layers.Add(name=f'{name}_sum')([x, y])

  def _dense(
    self, units: int, name: str, stddev: float = _STDDEV, **options: Any
  ) -> keras.layers.Dense:
    decay = self._weight_decay
    return keras.layers.Dense(
      units,
      use_bias=False,
      kernel_initializer=self.initializer(stddev),
      kernel_regularizer=keras.regularizers.L2(decay / 2) if decay else None,
      name=name,
      **options,
    )
