"""PowerSGD: low-rank approximations, by one step of power iteration.

Vogels et al., PowerSGD: Practical Low-Rank Gradient Compression for Distributed
Optimization, NeurIPS 2019, https://arxiv.org/abs/1905.13727, algorithm 1, in
the arithmetic of `powerSGD_hook` of PyTorch: Q is orthogonalised before it is
used, and sums of P are not divided. Departures: a variable is the matrix
[-1, last axis], since Keras has a kernel's outputs there and PyTorch in the
first axis; a column of Q that is zero, which in the hook remains zero, is
replaced by a column of the first Q; columns of P and Q are scaled before
epsilon is added, where the hook makes zeros of very small and large ones; a
column of P or Q in the span of those before it becomes zero, where the hook
takes what rounding leaves of it for a direction; and normal numbers are sums of
twelve uniform ones, the same on every platform.
"""

import tensorflow as tf

from terngrad.codec import method
from terngrad.codec import wrapper
from terngrad.codec.methods.transforms import low_rank
from terngrad.codec.stages import contract
from terngrad.codec.stages import random_bits

Q = 'powersgd_q'


class PowerSGD(method.Method):
  """Sends the sum of all gradients at rank `rank`, in two rounds.

  Use it with error feedback.
  """

  scope = contract.VARIABLE
  num_rounds = 2
  agrees = False
  # Compilers round products differently: see `low_rank.product`.
  compiled = False

  def __init__(
    self,
    rank: int = 1,
    epsilon: float = 1e-8,
    warm_start: int = 1,
    min_compression: float = 2.0,
  ) -> None:
    """Creates the method.

    Args:
      rank: columns of P and Q, >= 1; at most the rows and columns of a
        variable.
      epsilon: added to the norms that columns are divided by, >= 1e-30, since
        columns may be zero.
      warm_start: 1: a step begins with Q of the previous step; 0: with a new Q.
      min_compression: vectors, and variables with at most this many times the
        elements of P and Q, are sent as float32.

    Raises:
      ValueError: an option is out of its range.
    """
    is_finite = 1e-30 <= epsilon < float('inf')
    is_finite = is_finite and 0 <= min_compression < float('inf')
    if rank < 1 or not is_finite or warm_start not in (0, 1):
      raise ValueError(
        'powersgd: expected rank >= 1, epsilon >= 1e-30, warm_start 0 or 1 and '
        f'min_compression >= 0, received rank={rank}, epsilon={epsilon}, '
        f'warm_start={warm_start} and min_compression={min_compression}. Use '
        'powersgd:rank=2.'
      )
    self.name = f'powersgd({rank}{"" if warm_start else ", cold"})'
    self.traits = contract.Traits(
      unbiased=False,
      lossless=False,
      additive=False,
      randomness='none' if warm_start else 'shared',
    )
    self.rank, self.epsilon = rank, epsilon
    self.warm_start, self.min_compression = warm_start, min_compression

  def in_float(self, plain: method.Method) -> method.Method:
    """Returns the method of float32 steps, which does not change Q."""
    return wrapper.UnchangedStates(plain, self)

  def split(self, shapes: method.Shapes) -> low_rank.Matrices:
    """Chooses the variables to factor."""
    return low_rank.split(shapes, self.rank, self.min_compression)

  def messages(self, shapes: method.Shapes) -> method.Rounds:
    """Declares two rounds: P and the small variables, then Q."""
    found = self.split(shapes)
    kinds = found.p_shapes, found.small(shapes), found.q_shapes
    p, plain, q = (method.float_sum(sum(method.sizes_of(k))) for k in kinds)
    return (p, plain), (q,)

  def states(self, shapes: method.Shapes) -> tuple[method.State, ...]:
    """Declares Q of each matrix, shared by all workers, for a warm start."""
    found = self.split(shapes)
    return tuple(
      method.State(Q, method.SHARED, index, shape, low_rank.first_q)
      for index, shape in zip(found.indices, found.q_shapes, strict=True)
      if self.warm_start
    )

  def send(
    self,
    number: int,
    gradients: method.Tensors,
    states: method.Tensors,
    received: method.ReceivedRounds,
    context: method.Context,
  ) -> tuple[list[tf.Tensor], method.Tensors]:
    """Sends P and the small variables in round 0, and Q in round 1."""
    values = method.each(gradients, context)
    found = self.split(context.shapes)
    matrices = found.matrices(values)
    if number == 0:
      p = [
        low_rank.product(matrix, low_rank.orthogonal(q, self.epsilon))
        for matrix, q in zip(
          matrices, self.first_q(states, context), strict=True
        )
      ]
      return [low_rank.words(p), low_rank.words(found.small(values))], states
    pairs = zip(matrices, self.summed_p(received, context), strict=True)
    q = [low_rank.product(matrix, p, transpose_a=True) for matrix, p in pairs]
    return [low_rank.words(q)], states

  def first_q(
    self, states: method.Tensors, context: method.Context
  ) -> list[tf.Tensor]:
    """Returns Q of each matrix at the start of a step."""
    if self.warm_start:
      return [low_rank.replace_zero_columns(q) for q in states]
    found, starts = self.split(context.shapes), context.starts
    keys = [
      # Keyed by the variable's first element, which cutting does not change.
      random_bits.fold_in(context.common_key, tf.constant(starts[index]))
      for index in found.indices
    ]
    return list(map(low_rank.normal, found.q_shapes, keys))

  def summed_p(
    self, received: method.ReceivedRounds, context: method.Context
  ) -> list[tf.Tensor]:
    """Returns the orthogonalised sum of P of each matrix."""
    sums = received[0][0].sum(self.messages(context.shapes)[0][0])
    p = low_rank.cut(sums, self.split(context.shapes).p_shapes)
    return [low_rank.orthogonal(matrix, self.epsilon) for matrix in p]

  def decode(
    self,
    received: method.ReceivedRounds,
    states: method.Tensors,
    context: method.Context,
  ) -> tuple[list[tf.Tensor], method.Tensors]:
    """Computes the mean gradients as products of P and Q."""
    (_, plain), (last,) = self.messages(context.shapes)
    found = self.split(context.shapes)
    q = low_rank.cut(received[1][0].sum(last) * context.scale, found.q_shapes)
    pairs = zip(self.summed_p(received, context), q, strict=True)
    low = [low_rank.product(p, q, transpose_b=True) for p, q in pairs]
    small = received[0][1].sum(plain) * context.scale
    small = low_rank.cut(small, found.small(context.shapes))
    return found.join(low, small), q if self.warm_start else states
