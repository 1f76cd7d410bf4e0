"""Compressed gradients in a loop of one's own, in one call."""

import functools
from collections.abc import Sequence

import tensorflow as tf

from terngrad.codec import policy
from terngrad.codec.methods import registry
from terngrad.compression import compressor
from terngrad.compression import variable_codes


@tf.autograph.experimental.do_not_convert
def compress(
  gradients: Sequence[compressor.Gradient],
  codec: variable_codes.Spelled | compressor.Compressor = 'ternary',
  *,
  step: tf.Tensor | int,
  seed: int = 0,
  mean: bool = False,
  names: Sequence[str] = (),
  shapes: Sequence[Sequence[int] | tf.TensorShape] | None = None,
) -> Sequence[compressor.Gradient]:
  """Adds the gradients of all replicas up, as they tell it each other in codes.

  Under a strategy of `tf.distribute` this is called inside of `strategy.run`,
  in place of `tf.distribute.get_replica_context().all_reduce`; without one the
  gradients are coded and decoded. What is returned is for an update of one's
  own. An optimizer of Keras adds up by itself: `keras.CompressedOptimizer`.

  Examples:
    >>> import tensorflow as tf
    >>> gradients = [tf.constant([0.5, -0.25, 0.1, 0.0])]
    >>> (sent,) = compress(gradients, 'topk:ratio=0.5', step=0)
    >>> sent.numpy().tolist()
    [0.5, -0.25, 0.0, 0.0]

  Args:
    gradients: float32, float16 or bfloat16, of the same shapes in every call;
      `tf.IndexedSlices` travel as they are.
    codec: 'ternary', 'powersgd:rank=2', or a dict of regular expressions of
      names to such texts. A `Compressor` for codes that remember something.
    step: integer [], steps taken before: random codes depend on it.
    seed: integer, of the random codes; that of a `Compressor` is its own.
    mean: True returns the mean over the replicas: for losses that each replica
      averages over its own examples. The sum is for losses that are divided by
      the examples of all.
    names: of the variables, for a dict and for messages.
    shapes: of the variables, where those of the gradients are not known while
      the step is traced: `[variable.shape for variable in variables]`.

  Returns:
    Those of the same kinds, shapes and dtypes, the same bits on all replicas.
    Where a gradient is not finite on any replica, all elements of that one are
    NaN, and all that a `Compressor` remembers stays as it was.

  Raises:
    ValueError: a text that names no codec, or one that remembers; a dtype or
      a strategy that is not supported; or a shape that is not known.
  """
  if not isinstance(codec, compressor.Compressor):
    rules = codec if isinstance(codec, str) else tuple(codec.items())
    codec = _of_strategy(tf.distribute.get_strategy(), rules, seed)
  numbered = [f'gradient {index}' for index in range(len(gradients))]
  if shapes is None:
    shapes = [gradient.shape for gradient in gradients]
  specs = tuple(
    _spec(*each)
    for each in zip(names or numbered, gradients, shapes, strict=True)
  )
  model = specs if names else tuple(spec._replace(name='') for spec in specs)
  variables = policy.Variables(tuple(range(len(specs))), specs, model=model)
  return codec.all_reduce(gradients, variables, step, mean)


def _spec(
  name: str,
  gradient: compressor.Gradient,
  shape: Sequence[int] | tf.TensorShape,
) -> policy.VariableSpec:
  """What is known of the variable of a gradient.

  Raises:
    ValueError: its shape is not known, and it is coded; or another was given.
  """
  shape = tf.TensorShape(shape)
  if not shape.is_compatible_with(gradient.shape):
    raise ValueError(
      f'{name}: expected a gradient of shape {shape}, received one of '
      f'{gradient.shape}. Give the shapes in the order of the gradients.'
    )
  if shape.is_fully_defined():
    return policy.VariableSpec(name, tuple(shape))
  if isinstance(gradient, tf.IndexedSlices):
    # Nothing is coded.
    return policy.VariableSpec(name, ())
  raise ValueError(
    f'{name}: expected a gradient of a known shape, received one of {shape}. '
    'Call compress(..., shapes=[v.shape for v in variables]), of the variables '
    'that the gradients are of.'
  )


@functools.lru_cache(maxsize=64)
def _of_strategy(
  strategy: tf.distribute.Strategy,
  rules: str | tuple[tuple[str, str], ...],
  seed: int,
) -> compressor.Compressor:
  """A compressor that is called again with the same arguments."""
  made = compressor.Compressor(
    rules if isinstance(rules, str) else dict(rules), seed
  )
  for _, text in variable_codes.rules(made.codec):
    if registry.method(text, 1).states(((512, 512),)):
      raise ValueError(
        f'codec: expected one that remembers nothing, received {text!r}. '
        'Make a terngrad.Compressor of it once, and hand that over.'
      )
  return made
