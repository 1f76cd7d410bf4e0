"""DeMo: the largest cosine coefficients of each worker's momentum.

Peng, Quesnelle and Kingma, DeMo: Decoupled Momentum Optimization, 2024,
https://arxiv.org/abs/2411.19870, algorithm 1, and what their public code adds:
each worker adds its gradient to its momentum, sends the `count` largest cosine
coefficients of each block of up to 64 x 64 elements, and subtracts what it
sent. All devices decode the mean coefficients. The update is the sign of what
they are of, so use the optimizer `gd`. The defaults are those of the public
code: 32 coefficients, a decay of 0.999 and signs.

The mean of a coefficient is over the workers that sent it, as in the public
code. With mean=workers, it is over all workers, as of a gradient that is zero
elsewhere.

Departures: the momentum is m <- decay m + gradient, without the learning rate
in it, which changes only how steps of different rates weigh; a variable of more
than two axes is the matrix [-1, last axis]; indices take log2(block) bits
instead of 64; coefficients below 2**-100 are sent as zeros; the transform is
exact up to a rounding that is the same everywhere, see `dct`, so that all
devices decode the same bits. Float32 steps between coded steps send the whole
momentum, as if all coefficients were sent.
"""

import copy
from collections.abc import Sequence
from typing import cast

import numpy as np
import tensorflow as tf

from terngrad.codec import method
from terngrad.codec import wrapper
from terngrad.codec.methods import by_variable
from terngrad.codec.methods import few_elements
from terngrad.codec.methods.transforms import coefficients
from terngrad.codec.methods.transforms import dct
from terngrad.codec.stages import contract
from terngrad.codec.stages import weighted_sums

SENDERS, WORKERS = MEANS = ('senders', 'workers')
MOMENTUM = 'demo_momentum'
# Coefficients below this are zeros, so that zero gradients have no sign.
_LEAST = 2.0**-100


class Demo(method.Method):
  """Sends the largest cosine coefficients; decodes signs of their mean."""

  traits = by_variable.DETERMINISTIC._replace(preserves_scale=False)
  scope = contract.VARIABLE
  agrees = False
  estimates = True
  compiled = False  # XLA sorts: see `topk.largest`
  keeps_the_rest = makes_updates = True

  def __init__(
    self,
    count: int = 32,
    decay: float = 0.999,
    mean: str = SENDERS,
    signs: int = 1,
  ) -> None:
    """Creates the method.

    Args:
      count: coefficients that are sent of each block, >= 1; of smaller blocks
        all are sent.
      decay: of the momentum, in [0, 1].
      mean: 'senders' or 'workers', over which a coefficient's mean is.
      signs: 1: decodes to the signs of the mean; 0: to the mean.

    Raises:
      ValueError: an option is out of its range.
    """
    is_valid = count >= 1 and 0 <= decay <= 1 and signs in (0, 1)
    if not is_valid or mean not in MEANS:
      raise ValueError(
        'demo: expected count >= 1, decay from 0 to 1, mean senders or workers '
        f'and signs 0 or 1, received count={count}, decay={decay}, mean={mean} '
        f'and signs={signs}. Use demo:count=32.'
      )
    more = ''.join([', workers' * (mean == WORKERS), ', means' * (not signs)])
    self.name = f'demo({count}, {decay:g}{more})'
    self.count, self.decay = count, decay
    self.mean, self.signs = mean, signs
    averages = mean == WORKERS and not signs
    self.traits = self.traits._replace(averages=averages)

  def on_gpus(self) -> method.Method:
    """Returns the method compiled; otherwise its int32 is in host memory."""
    made = copy.copy(self)
    made.compiled = True
    return made

  def in_float(self, plain: method.Method) -> method.Method:
    """Returns the method of float32 steps, which send the momentum."""
    return WholeMomentum(plain, self)

  def layouts(self, shapes: method.Shapes) -> list[coefficients.BlockLayout]:
    """Returns the layout of each variable's payload."""
    return [coefficients.BlockLayout.of_shape(s, self.count) for s in shapes]

  def messages(self, shapes: method.Shapes) -> method.Rounds:
    """Declares one round with the coefficients of all variables.

    Raises:
      ValueError: they have more elements than int32 indices can name.
    """
    few_elements.check_indices('demo', method.sizes_of(shapes))
    words = sum(layout.num_words for layout in self.layouts(shapes))
    return ((method.gathered(words),),)

  def states(self, shapes: method.Shapes) -> tuple[method.State, ...]:
    """Declares each worker's momentum."""
    return tuple(
      method.State(MOMENTUM, method.WORKER, index, tuple(shape))
      for index, shape in enumerate(shapes)
    )

  def begin(
    self,
    gradients: method.Tensors,
    states: method.Tensors,
    context: method.Context,
  ) -> tuple[method.Tensors, tf.Tensor]:
    """Adds the gradients to the momentum."""
    momentum = self.momentum(gradients, states, context)
    return super().begin(momentum, states, context)

  def momentum(
    self,
    gradients: method.Tensors,
    states: method.Tensors,
    context: method.Context,
  ) -> list[tf.Tensor]:
    """Returns the momentum with the gradients, a list of float32 [n]."""
    pairs = zip(method.each(gradients, context), states, strict=True)
    return [
      weighted_sums.add(self.decay, tf.reshape(old, [-1]), 1, gradient)
      for gradient, old in pairs
    ]

  def send(
    self,
    number: int,
    gradients: method.Tensors,
    states: method.Tensors,
    received: method.ReceivedRounds,
    context: method.Context,
  ) -> tuple[list[tf.Tensor], method.Tensors]:
    """Sends the coefficients, and subtracts them from the momentum."""
    momentum = method.each(gradients, context)
    words = [tf.zeros([0], tf.int32)]
    layouts = self.layouts(context.shapes)
    for values, shape, layout in zip(
      momentum, context.shapes, layouts, strict=True
    ):
      if layout.blocks:
        blocks = dct.transform(dct.to_blocks(values, shape))
        rows = tf.reshape(blocks, [layout.blocks, layout.size])
        rows = tf.where(tf.abs(rows) < _LEAST, 0.0, rows)
        words.append(coefficients.encode(rows, layout))
    payload = tf.concat(words, axis=0)
    sent = self.inverted(self.mean_of(payload[tf.newaxis], context), context)
    pairs = zip(momentum, sent, strict=True)
    left = [values - known for values, known in pairs]
    return [payload], method.shaped(left, context)

  def decode(
    self,
    received: method.ReceivedRounds,
    states: method.Tensors,
    context: method.Context,
  ) -> tuple[list[tf.Tensor], method.Tensors]:
    """Decodes the mean coefficients, or the signs of what they are of."""
    ((payloads,),) = received
    # The only message is gathered.
    rows = method.stack_by_worker(cast(method.Payloads, payloads).parts)
    decoded = self.decoded(rows, context)
    return method.shaped(decoded, context), states

  def estimate(
    self, words: Sequence[tf.Tensor], context: method.Context
  ) -> list[tf.Tensor]:
    """Decodes this worker's coefficients."""
    return self.decoded(words[0][tf.newaxis], context)

  def decoded(
    self, rows: tf.Tensor, context: method.Context
  ) -> list[tf.Tensor]:
    """Decodes payloads of workers, int32 [n, w], to a list of float32 [n]."""
    return self.updates(self.inverted(self.mean_of(rows, context), context))

  def updates(self, means: list[tf.Tensor]) -> list[tf.Tensor]:
    """Returns the signs of the mean momentum, if they are enabled."""
    return list(map(tf.sign, means)) if self.signs else means

  def mean_of(self, rows: tf.Tensor, context: method.Context) -> tf.Tensor:
    """Returns the mean coefficients of all variables, float32 [elements]."""
    layouts = self.layouts(context.shapes)
    sizes = [layout.num_words for layout in layouts]
    starts = method.starts_of(context.sizes)
    count = rows.shape[0]

    def add(
      row: tf.Tensor, total: tf.Tensor, senders: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
      parts = tf.split(rows[row], sizes)
      found = [
        coefficients.decode(*p) for p in zip(parts, layouts, strict=True)
      ]
      places = [start + i for start, (i, _) in zip(starts, found, strict=True)]
      indices = tf.concat(places, axis=0)[:, tf.newaxis]
      values = tf.concat([values for _, values in found], axis=0)
      return (
        row + 1,
        tf.tensor_scatter_nd_add(total, indices, values),
        tf.tensor_scatter_nd_add(senders, indices, tf.ones_like(values)),
      )

    zeros = tf.zeros([sum(context.sizes)])
    _, total, senders = tf.while_loop(
      lambda row, *_: row < count,
      add,
      (tf.constant(0), zeros, zeros),
      parallel_iterations=1,
    )
    if self.mean == WORKERS:
      return total * (1.0 / count)
    # Graphs replace divisions by products, see `Context.scale`.
    inverses = 1.0 / np.maximum(np.arange(count + 1), 1)
    table = tf.constant(inverses.astype(np.float32))
    # Damaged words may name a coefficient twice.
    senders = tf.cast(tf.minimum(senders, float(count)), tf.int32)
    return total * tf.gather(table, senders)

  def inverted(
    self, means: tf.Tensor, context: method.Context
  ) -> list[tf.Tensor]:
    """Transforms coefficients to variables, a list of float32 [n]."""
    found = []
    parts = tf.split(means, context.sizes)
    for part, shape in zip(parts, context.shapes, strict=True):
      if part.shape[0]:
        _, height, _, width = dct.sides(shape)
        blocks = tf.reshape(part, [-1, height, width])
        part = dct.from_blocks(dct.transform(blocks, inverse=True), shape)
      found.append(part)
    return found


class WholeMomentum(wrapper.UnchangedStates):
  """Float32 steps of `Demo`, which leave no momentum."""

  stateful: Demo

  def __init__(self, plain: method.Method, demo: Demo) -> None:
    """Wraps the method that sends float32."""
    super().__init__(plain, demo)
    self.name = f'{demo.name} in float'
    self.traits = plain.traits._replace(
      unbiased=False, lossless=False, preserves_scale=False
    )
    self.digits = self.unit = None
    self.estimates = False
    self.keeps_the_rest = self.makes_updates = True

  def in_float(self, plain: method.Method) -> method.Method:
    """Returns this method."""
    return self

  def begin(
    self,
    gradients: method.Tensors,
    states: method.Tensors,
    context: method.Context,
  ) -> tuple[method.Tensors, tf.Tensor]:
    """Adds the gradients to the momentum."""
    momentum = self.stateful.momentum(gradients, states, context)
    return self.method.begin(momentum, (), context)

  def send(
    self,
    number: int,
    gradients: method.Tensors,
    states: method.Tensors,
    received: method.ReceivedRounds,
    context: method.Context,
  ) -> tuple[list[tf.Tensor], method.Tensors]:
    """Sends the momentum and sets it to zero."""
    words, _ = self.method.send(number, gradients, (), received, context)
    return words, [tf.zeros_like(state) for state in states]

  def decode(
    self,
    received: method.ReceivedRounds,
    states: method.Tensors,
    context: method.Context,
  ) -> tuple[list[tf.Tensor], method.Tensors]:
    """Decodes the mean momentum, or its signs."""
    means, _ = self.method.decode(received, (), context)
    return self.stateful.updates(means), states
