"""Layers of language models that Keras does not have in all its versions."""

from typing import Any

import keras


@keras.saving.register_keras_serializable(package='slim')
class TiedEmbedding(keras.layers.Layer):
  """One matrix that embeds tokens and computes their logits.

  `layer(tokens)` maps int32 [B, T] to rows of the matrix, [B, T, width].
  `layer(x, reverse=True)` maps [B, T, width] to logits, float32 [B, T,
  vocabulary] under any precision policy.

  References:
    Press and Wolf, Using the Output Embedding to Improve Language Models,
    https://arxiv.org/abs/1608.05859.
  """

  def __init__(
    self,
    vocabulary: int,
    width: int,
    initializer: str | keras.initializers.Initializer = 'uniform',
    **options: Any,
  ) -> None:
    """Sets the number of tokens, the width and the initializer."""
    super().__init__(**options)
    self._vocabulary, self._width = vocabulary, width
    self._initializer = keras.initializers.get(initializer)

  def build(self, input_shape: tuple[int | None, ...]) -> None:
    """Creates the matrix, float32 [vocabulary, width]."""
    del input_shape
    self.embeddings = self.add_weight(
      shape=(self._vocabulary, self._width),
      initializer=self._initializer,
      name='embeddings',
      autocast=False,  # logits need all its bits under any precision policy
    )

  def call(self, x: Any, reverse: bool = False) -> Any:
    """Embeds tokens, or computes logits if `reverse`."""
    if not reverse:
      rows = keras.ops.take(self.embeddings, x, axis=0)
      return keras.ops.cast(rows, self.compute_dtype)
    matrix = keras.ops.cast(self.embeddings, 'float32')
    return keras.ops.matmul(
      keras.ops.cast(x, 'float32'), keras.ops.transpose(matrix)
    )

  def get_config(self) -> dict[str, Any]:
    """Returns the arguments of the layer, to save it with a model."""
    initializer = keras.initializers.serialize(self._initializer)
    return super().get_config() | {
      'vocabulary': self._vocabulary,
      'width': self._width,
      'initializer': initializer,
    }


@keras.saving.register_keras_serializable(package='slim')
class CausalAttention(keras.layers.Layer):
  """Softmax attention to the same and earlier positions, without weights.

  Maps [B, T, 3 * width], the concatenated queries, keys and values of all
  heads, to [B, T, width]. Queries and keys are rotated by their position:
  elements i and i + half of a head of 2 * half elements turn by the angle
  position * 10000 ** (-i / half).

  References:
    Su et al., RoFormer: Enhanced Transformer with Rotary Position Embedding,
    https://arxiv.org/abs/2104.09864.
    Vaswani et al., Attention Is All You Need,
    https://arxiv.org/abs/1706.03762, section 3.2.
  """

  def __init__(self, heads: int, **options: Any) -> None:
    """Sets the number of heads, which divides width / 2."""
    super().__init__(**options)
    self._heads = heads

  def call(self, x: Any) -> Any:
    """Attends within each head and concatenates the results."""
    ops = keras.ops
    width = x.shape[-1] // 3
    length = ops.shape(x)[1]
    # Batches are as static as the input.
    shape = (-1, length, 3, self._heads, width // self._heads)
    query, key, value = ops.unstack(ops.reshape(x, shape), 3, axis=2)
    angles = _angles(length, width // self._heads // 2)
    turns = [
      ops.cast(turn, x.dtype) for turn in (ops.cos(angles), ops.sin(angles))
    ]
    found = ops.nn.dot_product_attention(
      _rotate(query, *turns), _rotate(key, *turns), value, is_causal=True
    )
    return ops.reshape(found, (-1, length, width))

  def compute_output_shape(
    self, input_shape: tuple[int | None, ...]
  ) -> tuple[int | None, ...]:
    """Returns [B, T, width] for [B, T, 3 * width]."""
    return (*input_shape[:-1], int(input_shape[-1] or 0) // 3)

  def get_config(self) -> dict[str, Any]:
    """Returns the arguments of the layer, to save it with a model."""
    return super().get_config() | {'heads': self._heads}


def _angles(length: Any, half: int) -> Any:
  """Returns the angles of all positions, float32 [T, 1, half]."""
  ops = keras.ops
  rates = 10000.0 ** (-ops.arange(half, dtype='float32') / half)
  positions = ops.arange(length, dtype='float32')
  return ops.reshape(positions, (-1, 1, 1)) * rates


def _rotate(x: Any, cosines: Any, sines: Any) -> Any:
  """Turns the halves of [B, T, heads, 2 * half] by angles [T, 1, half]."""
  first, second = keras.ops.split(x, 2, axis=-1)
  return keras.ops.concatenate(
    [first * cosines - second * sines, second * cosines + first * sines], -1
  )
