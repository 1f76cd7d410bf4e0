"""Variables as matrices, and arithmetic of matrices with few columns.

Sums and products of floats depend on their order, and so on the compiler. The
functions here give the same bits in every mode: eager, traced or compiled.
"""

import functools
import math
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import tensorflow as tf

from terngrad.codec import method
from terngrad.codec.methods.transforms import rotation
from terngrad.codec.stages import random_bits
from terngrad.codec.stages import tracing

_SEED = 20190531
# Rounding leaves some 2**-23 of a column, with elements up to 2, that is in the
# span of others.
_SMALLEST_REST = 2.0**-18


class Matrices(NamedTuple):
  """Partition of variables into matrices, factored as P and Q, and small ones.

  Attributes:
    shapes: tuple of the shapes of v variables.
    factors: for each (rows, columns, rank), or None for a small one.
  """

  shapes: method.Shapes
  factors: tuple[tuple[int, int, int] | None, ...]

  @property
  def indices(self) -> list[int]:
    """Indices of the matrices among the variables."""
    return [i for i, factor in enumerate(self.factors) if factor]

  @property
  def _sides(self) -> list[tuple[int, int, int]]:
    return [factor for factor in self.factors if factor]

  @property
  def p_shapes(self) -> list[tuple[int, int]]:
    """(rows, rank) of each matrix."""
    return [(rows, rank) for rows, _, rank in self._sides]

  @property
  def q_shapes(self) -> list[tuple[int, int]]:
    """(columns, rank) of each matrix."""
    return [(columns, rank) for _, columns, rank in self._sides]

  def matrices(self, values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Selects the matrices among v tensors, [rows, columns]."""
    pairs = zip(self.indices, self._sides, strict=True)
    return [tf.reshape(values[i], sides[:2]) for i, sides in pairs]

  def small(self, values: Sequence[Any]) -> list[Any]:
    """Selects the small ones in a list of v values."""
    pairs = zip(values, self.factors, strict=True)
    return [value for value, factor in pairs if not factor]

  def join(
    self, matrices: Iterable[tf.Tensor], small: Iterable[tf.Tensor]
  ) -> list[tf.Tensor]:
    """Joins matrices and small tensors to v tensors of `shapes`."""
    matrices, small = iter(matrices), iter(small)
    return [
      tf.reshape(next(matrices if factor else small), shape)
      for factor, shape in zip(self.factors, self.shapes, strict=True)
    ]


def split(shapes: method.Shapes, rank: int, min_compression: float) -> Matrices:
  """Chooses the matrices among variables.

  Args:
    shapes: shapes of v variables.
    rank: the largest number of columns of P and Q, >= 1.
    min_compression: matrices have more than this times the elements of P and Q.
  """
  factors = (_factor(shape, rank, min_compression) for shape in shapes)
  return Matrices(tuple(shapes), tuple(factors))


def _factor(
  shape: Sequence[int], rank: int, min_compression: float
) -> tuple[int, int, int] | None:
  """Returns (rows, columns, rank), or None if compression saves too little."""
  if len(shape) < 2:
    return None
  *outer, columns = shape
  rows = math.prod(outer)
  rank = min(rank, rows, columns)
  is_smaller = (rows + columns) * rank * min_compression < rows * columns
  return (rows, columns, rank) if is_smaller else None


def words(values: Sequence[tf.Tensor]) -> tf.Tensor:
  """Joins a list of float32 as int32 [elements]."""
  flat = [tf.zeros([0]), *(tf.reshape(value, [-1]) for value in values)]
  return tf.bitcast(tf.concat(flat, axis=0), tf.int32)


def cut(flat: tf.Tensor, shapes: method.Shapes) -> list[tf.Tensor]:
  """Cuts `flat` into consecutive tensors of these shapes."""
  sizes = method.sizes_of(shapes)
  parts = tf.split(flat[: sum(sizes)], sizes) if sizes else []
  return [tf.reshape(p, s) for p, s in zip(parts, shapes, strict=True)]


def first_q(shape: Sequence[int]) -> tf.Tensor:
  """Returns Q of a run's first step, float32 of the shape."""
  return normal(shape, random_bits.seed_key(_SEED))


def replace_zero_columns(q: tf.Tensor) -> tf.Tensor:
  """Replaces columns of zeros in Q by the first Q's columns."""
  return tf.where(tf.reduce_any(q != 0, axis=0), q, first_q(q.shape))


def normal(shape: Sequence[int], key: tf.Tensor) -> tf.Tensor:
  """Draws nearly standard normal float32, the same bits on every platform."""
  count = math.prod(shape)
  # Not int32, which GPUs have in host memory.
  positions = tf.cast(tf.range(6 * count, dtype=tf.int64), tf.uint32)
  bits = tf.reshape(random_bits.element_bits(key, positions), [6, count])
  halves = tf.bitwise.right_shift(bits, 16), tf.bitwise.bitwise_and(bits, 65535)
  # The sum of twelve 16-bit numbers, each with the variance 1 / 12. float32 is
  # exact below 2**24.
  total = tf.reduce_sum(tf.cast(tf.stack(halves), tf.float32), axis=[0, 1])
  return tf.reshape((total - 6 * 65535) / 65536, shape)


def product(
  a: tf.Tensor,
  b: tf.Tensor,
  transpose_a: bool = False,
  transpose_b: bool = False,
) -> tf.Tensor:
  """Multiplies matrices, with the same bits in every mode."""
  return _compiled(
    _multiply_by_column if transpose_a else tf.matmul,
    (tuple(a.shape), tuple(b.shape)),
    transpose_a=transpose_a,
    transpose_b=transpose_b,
  )(a, b)


def _multiply_by_column(
  a: tf.Tensor, b: tf.Tensor, **transposed: bool
) -> tf.Tensor:
  """Multiplies column by column.

  XLA has a special loop for a transposed matrix and a vector. A product with
  two columns or more takes thirty times as long, whatever their number.
  """
  columns = tf.split(b, b.shape[1], axis=1)
  return tf.concat([tf.matmul(a, c, **transposed) for c in columns], axis=1)


def orthogonal(matrix: tf.Tensor, epsilon: float) -> tf.Tensor:
  """Orthogonalises the columns by Gram-Schmidt.

  A column that is in the span of those before it becomes zero: what rounding
  leaves of it has no meaning.

  Args:
    matrix: float32 [n, r]; columns of any magnitude.
    epsilon: added to the norms that columns are divided by, after a power of
      two made them 1 or more.
  """
  shapes = (tuple(matrix.shape),)
  return _compiled(_gram_schmidt, shapes, epsilon=epsilon)(matrix)


def _gram_schmidt(matrix: tf.Tensor, epsilon: float) -> tf.Tensor:
  count = matrix.shape[1]

  def unit(column: tf.Tensor) -> tf.Tensor:
    return column / (tf.norm(column) + epsilon)

  def add(i: tf.Tensor, base: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    column = _scaled(tf.gather(matrix, i, axis=1))
    # Once is not enough: the first difference has the errors of large numbers.
    for _ in range(2):
      parts = tf.reduce_sum(base * column[:, None], axis=0)
      column -= tf.reduce_sum(base * parts, axis=1)
    column = unit(_scaled(column, least=_SMALLEST_REST))
    return i + 1, tf.where(tf.range(count) == i, column[:, None], base)

  first = unit(_scaled(matrix[:, 0]))[:, None]
  if count == 1:
    return first
  # A loop, whose compilation takes as long for every number of columns.
  base = tf.pad(first, [[0, 0], [0, count - 1]])
  _, base = tf.while_loop(lambda i, _: i < count, add, (1, base))
  return base


def _scaled(column: tf.Tensor, least: float = 0.0) -> tf.Tensor:
  """Multiplies by the power of two that brings the largest element to [1, 2).

  If all magnitudes are less than `least`, which NaN is not, the column becomes
  zero.
  """
  sizes = tf.abs(column)
  factor = 1.0 / rotation.power_of_two(tf.reduce_max(sizes))
  # Compilers differ on the maximum of NaN.
  return tf.where(tf.reduce_all(sizes < least), 0.0, column * factor)


@functools.cache
def _compiled(
  function: Callable[..., tf.Tensor],
  shapes: tuple[tuple[int, ...], ...],
  **options: Any,
) -> Callable[..., tf.Tensor]:
  """Compiles once for every mode: TensorFlow's and XLA's products differ."""
  made = tracing.compiled(functools.partial(function, **options))
  return made.get_concrete_function(*map(tf.TensorSpec, shapes))
