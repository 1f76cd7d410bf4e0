"""Measures a training step of a Keras model without exchange."""

import itertools
import math
import time
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from slim.datasets.records import progress
from terngrad import errors
from terngrad.codec.stages import tracing
from terngrad.keras import optimizer as optimizers

# Rounds that are timed however long they take.
_FEWEST_ROUNDS = 3
_now = time.perf_counter


class MeasuredModel(NamedTuple):
  """What a plan needs to know of a model.

  Attributes:
    shapes: shapes of the variables with dense gradients, which are encoded.
    seconds: median seconds of a step: forward and backward pass, and update; 0
      if they are not known.
    spread: half the interquartile range of the steps divided by `seconds`.
    row_bytes: bytes of a worker's sparse gradients (`tf.IndexedSlices`, as of
      embeddings), which `CompressedOptimizer` sends uncompressed.
    sparse: names of the variables with sparse gradients.
    statistics: moving statistics, which the trainers send; Keras's strategies
      average them themselves.
  """

  shapes: list[tuple[int, ...]]
  seconds: float
  spread: float = 0.0
  row_bytes: int = 0
  sparse: tuple[str, ...] = ()
  statistics: int = 0


class _SyntheticStep:
  """A traced training step on a constant synthetic batch.

  Attributes:
    sparse: the variables with sparse gradients, after the first call.
    dense: the other variables with gradients.
    widths: bytes of an element of the values and of the indices, for each
      sparse gradient one after the other.
  """

  def __init__(
    self, model: keras.Model, optimizer: keras.optimizers.Optimizer, inputs: Any
  ) -> None:
    self._model = model
    self._optimizer = optimizer
    self._inputs = inputs
    self.sparse: list[keras.Variable] = []
    self.dense: list[keras.Variable] = []
    self.widths: list[int] = []
    self._run = tracing.function(self._train)
    if not optimizer.built:
      optimizer.build(model.trainable_variables)

  def __call__(self) -> np.ndarray:
    """Takes a step; returns the numbers of elements that `widths` describes."""
    return self._run().numpy()

  def _train(self) -> tf.Tensor:
    model, variables = self._model, self._model.trainable_variables
    with tf.GradientTape() as tape:
      outputs = keras.tree.flatten(model(self._inputs, training=True))
      others = [tf.cast(loss, tf.float32) for loss in model.losses]
      loss = tf.add_n([*map(_mean_square, outputs), *others])
    found = tape.gradient(loss, [variable.value for variable in variables])
    pairs = [p for p in zip(found, variables, strict=True) if p[0] is not None]
    stay_sparse = not optimizers.dense_causes(self._optimizer)
    is_sparse = [
      stay_sparse and isinstance(g, tf.IndexedSlices) for g, _ in pairs
    ]
    rows = [*itertools.compress(pairs, is_sparse)]
    self.sparse = [variable for _, variable in rows]
    self.dense = [
      v for (_, v), s in zip(pairs, is_sparse, strict=True) if not s
    ]
    parts = [part for g, _ in rows for part in (g.values, g.indices)]
    self.widths = [part.dtype.size for part in parts]
    self._optimizer.apply(found, variables)
    return tf.stack([tf.constant(0), *map(tf.size, parts)])[1:]


def _mean_square(output: tf.Tensor) -> tf.Tensor:
  """Returns a loss of an output, float32 []; its cost is negligible."""
  if not output.dtype.is_floating:
    return tf.constant(0.0)
  return tf.reduce_mean(tf.square(tf.cast(output, tf.float32)))


def measure(
  model: keras.Model,
  optimizer: keras.optimizers.Optimizer,
  batch_size: int,
  rounds: int,
  most_seconds: float,
) -> MeasuredModel:
  """Times training steps of a model on synthetic examples.

  Args:
    model: the model; the steps change its values.
    optimizer: its optimizer, without wrappers.
    batch_size: examples of a step.
    rounds: number of timed steps, after one that is not timed.
    most_seconds: no step begins after this time, except the first three.

  Raises:
    errors.ConfigError: the model cannot be trained on synthetic examples.
  """
  end = _now() + most_seconds
  try:
    step = _SyntheticStep(model, optimizer, synthetic_batch(model, batch_size))
    sizes = step()
  except errors.ConfigError:
    raise
  except Exception as error:  # A layer of any kind may refuse the examples.
    reason = ' '.join(str(error).split())[:300]
    raise errors.ConfigError(
      f'model: expected a model that trains on random examples, received '
      f'{type(error).__name__}: {reason}. Give --elements, the number of '
      'parameters, and --seconds, the time of a step of your program.'
    ) from error
  if not step.dense:
    raise errors.ConfigError(
      'model: expected at least one variable with a dense gradient, which can '
      'be compressed, received none. Plan a model that is trained.'
    )
  seconds: list[float] = []
  with progress.Progress(total=rounds, desc='steps', unit='step') as bar:
    for number in range(rounds):
      if number >= _FEWEST_ROUNDS and _now() >= end:
        break
      start = _now()
      step()
      seconds.append(_now() - start)
      bar.update()
  return _summary(step, sizes, seconds)


def _summary(
  step: _SyntheticStep, sizes: np.ndarray, seconds: Sequence[float]
) -> MeasuredModel:
  low, middle, high = np.quantile(seconds, (0.25, 0.5, 0.75))
  return MeasuredModel(
    [tuple(variable.shape) for variable in step.dense],
    float(middle),
    float((high - low) / 2 / middle) if middle else 0.0,
    sum(int(n) * width for n, width in zip(sizes, step.widths, strict=True)),
    tuple(variable.path for variable in step.sparse),
  )


def describe(found: MeasuredModel, batch_size: int) -> str:
  """Returns lines on a measured model, for the log."""
  count = sum(math.prod(shape) for shape in found.shapes)
  lines = [
    f'{count:,} parameters with dense gradients; a step of {batch_size} '
    f'examples computes {found.seconds:.3g} s ±{found.spread:.0%} here'
  ]
  if found.sparse:
    lines.append(
      f'sent uncompressed with every code: {found.row_bytes:,} bytes of sparse '
      f'gradients a step, of {", ".join(found.sparse)}'
    )
  return '\n'.join(lines)


def synthetic_batch(model: keras.Model, batch_size: int) -> Any:
  """Draws random examples in the structure of a model's inputs.

  Integers are below the size of every embedding.

  Raises:
    errors.ConfigError: the sizes or types of the inputs are not known.
  """
  tensors = getattr(model, 'inputs', None)
  if not tensors:
    raise errors.ConfigError(
      'model: expected a model with known inputs (Sequential with keras.Input, '
      f'or functional), received {type(model).__name__}. Give --elements and '
      '--seconds instead.'
    )
  most = min(_embedding_sizes(model), default=2)
  drawn = [_draw(tensor, batch_size, most) for tensor in tensors]
  return drawn[0] if len(drawn) == 1 else _in_structure(model, drawn)


def _in_structure(model: keras.Model, drawn: list[tf.Tensor]) -> Any:
  return keras.tree.pack_sequence_as(model.input, drawn)


def _embedding_sizes(model: keras.Model) -> list[int]:
  return [
    layer.input_dim
    for layer in model._flatten_layers()
    if isinstance(layer, keras.layers.Embedding)
  ]


def _draw(tensor: keras.KerasTensor, batch_size: int, most: int) -> tf.Tensor:
  """Draws an input, whose shape must be known except for the batch."""
  shape, dtype = tensor.shape[1:], tf.as_dtype(tensor.dtype)
  if None in shape or dtype == tf.string:
    raise errors.ConfigError(
      f'model: expected inputs of numbers with known sizes, received '
      f'{tensor.name} of {tensor.dtype} with shape {tuple(tensor.shape)}. Save '
      'the model with keras.Input(shape) of the size that you train with, or '
      'give --elements and --seconds instead.'
    )
  full = (batch_size, *shape)
  if dtype.is_integer:
    drawn = tf.random.stateless_uniform(full, [1, 2], 0, most, tf.int64)
  elif dtype.is_bool:
    return tf.ones(full, tf.bool)
  else:
    drawn = tf.random.stateless_normal(full, [1, 2])
  return tf.cast(drawn, dtype)
