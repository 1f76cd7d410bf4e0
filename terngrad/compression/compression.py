"""Compressed gradient sums in a custom training loop, in one call."""

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
  codec: variable_codes.CodecOption | compressor.Compressor = 'ternary',
  *,
  step: tf.Tensor | int,
  seed: int = 0,
  mean: bool = False,
  names: Sequence[str] = (),
  shapes: Sequence[Sequence[int] | tf.TensorShape] | None = None,
) -> Sequence[compressor.Gradient]:
  """Sums the gradients of all replicas, compressed.

  Under a `tf.distribute` strategy, call this inside `strategy.run`, instead of
  `tf.distribute.get_replica_context().all_reduce`. Without a strategy the
  gradients are encoded and decoded. The result is for a custom update. Keras
  optimizers sum gradients themselves: wrap them by `keras.CompressedOptimizer`.

  Examples:
    >>> import tensorflow as tf
    >>> gradients = [tf.constant([0.5, -0.25, 0.1, 0.0])]
    >>> (sent,) = compress(gradients, 'topk:ratio=0.5', step=0)
    >>> sent.numpy().tolist()
    [0.5, -0.25, 0.0, 0.0]

  Args:
    gradients: float32, float16 or bfloat16; `tf.IndexedSlices` are sent
      uncompressed.
    codec: a text such as 'ternary' or 'powersgd:rank=2', or a dict from regular
      expressions of names to such texts. Codecs with state need a `Compressor`.
    step: integer [], steps taken before; random codes depend on it.
    seed: of the random codes. A `Compressor` uses its seed instead.
    mean: True returns the mean over the replicas, for losses that each replica
      averages over its local examples. False returns the sum, for losses that
      are divided by the number of all examples.
    names: names of the variables, for a dict of codecs and for messages.
    shapes: shapes of the variables. Needed if the gradients have unknown shapes
      when the step is traced: `[variable.shape for variable in variables]`.

  Returns:
    Gradients of the same kinds, shapes and dtypes, bit-identical on all
    replicas. If a gradient is not finite on some replica, all its elements are
    NaN, and the state of a `Compressor` does not change.

  Raises:
    ValueError: the codec is unknown, needs a `Compressor` or one of this model,
      or has virtual workers; a dtype or a strategy is not supported; or a
      gradient is None, or its shape not known.
  """
  if not isinstance(codec, compressor.Compressor):
    rules = tuple(variable_codes.rules(codec))
    codec = _cached_compressor(tf.distribute.get_strategy(), rules, seed)
  numbered = [f'gradient {index}' for index in range(len(gradients))]
  given = shapes or [None] * len(gradients)
  specs = tuple(
    _spec(*each)
    for each in zip(names or numbered, gradients, given, strict=True)
  )
  model = specs if names else tuple(spec._replace(name='') for spec in specs)
  variables = policy.Variables(tuple(range(len(specs))), specs, model=model)
  return codec.all_reduce(gradients, variables, step, mean)


def _spec(
  name: str,
  gradient: compressor.Gradient | None,
  given: Sequence[int] | tf.TensorShape | None,
) -> policy.VariableSpec:
  """Returns the name and the shape of a gradient's variable.

  Args:
    name: of the variable.
    gradient: its gradient.
    given: its shape; None for that of the gradient.

  Raises:
    ValueError: a gradient is None; or a dense one has an unknown shape, or not
      the given one.
  """
  if gradient is None:
    raise ValueError(
      f'{name}: expected a gradient, received None: the loss does not depend '
      'on the variable. Leave it out, or pass zeros.'
    )
  shape = tf.TensorShape(gradient.shape if given is None else given)
  if not shape.is_compatible_with(gradient.shape):
    raise ValueError(
      f'{name}: expected a gradient of shape {shape}, received one of '
      f'{gradient.shape}. Pass the shapes in the order of the gradients.'
    )
  if shape.is_fully_defined():
    return policy.VariableSpec(name, tuple(shape))
  if isinstance(gradient, tf.IndexedSlices):
    # Sparse gradients are not encoded.
    return policy.VariableSpec(name, ())
  raise ValueError(
    f'{name}: expected a gradient of a known shape, received one of {shape}. '
    'Call compress(..., shapes=[v.shape for v in variables]), with the '
    'variables in the order of the gradients.'
  )


@functools.lru_cache(maxsize=64)
def _cached_compressor(
  strategy: tf.distribute.Strategy,
  rules: tuple[tuple[str, str], ...],
  seed: int,
) -> compressor.Compressor:
  """Returns a compressor, the same one for the same arguments."""
  made = compressor.Compressor(dict(rules), seed)
  for _, text in rules:
    if registry.method(text, 1).states(((512, 512),)):
      raise ValueError(
        f'codec: expected one without state, received {text!r}. Create '
        f'terngrad.Compressor({text!r}) once, and pass it as codec.'
      )
  return made
