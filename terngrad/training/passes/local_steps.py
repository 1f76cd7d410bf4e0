"""Local steps: workers train by themselves, and exchange what that changed.

McMahan et al., Communication-Efficient Learning of Deep Networks from
Decentralized Data, AISTATS 2017, https://arxiv.org/abs/1602.05629, and Stich,
Local SGD Converges Fast and Communicates Little, ICLR 2019,
https://arxiv.org/abs/1805.09767, where the outer optimizer is plain descent at
rate 1; Douillard et al., DiLoCo: Distributed Low-Communication Training of
Language Models, 2023, https://arxiv.org/abs/2311.08105, algorithm 1, where it
is Nesterov's momentum. Departures from the last: the inner optimizer is descent
with momentum, not AdamW, and begins anew after each exchange, so that a worker
keeps nothing in between.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from terngrad.step import passes
from terngrad.training.passes import accumulation


class LocalSteps(NamedTuple):
  """What a worker does between two exchanges.

  Attributes:
    count: H, steps of its own.
    momentum: of those, in [0, 1).
    outer_rate: the learning rate of the update after the exchange.
    decay: see `passes.Pass.decay`: L2 terms act in the workers' own steps.
  """

  count: int
  momentum: float
  outer_rate: float
  decay: Callable

  def of(self, node_pass, learning_rate):
    """The pass whose gradient is what the worker's own steps took away.

    A share of H b examples is H batches. Parameters and moving statistics go
    from step to step; a worker holds two more copies of the parameters, or
    three with momentum, while it is its turn.

    Args:
      node_pass: `passes.Pass` of one batch.
      learning_rate: float32 [], of the worker's own steps.

    Returns:
      A `passes.Pass`; its scores are the means over the H steps.
    """

    def run(parameters, held, images, labels, key, scale=None):
      images, labels = accumulation.parts_of(self.count, images, labels)
      fixed = held[node_pass.num_statistics :]

      def step(number, values, velocities, moments, total):
        gradients, scores, moments = node_pass.gradients(
          values,
          [*moments, *fixed],
          images[number],
          labels[number],
          accumulation.part_key(key, number),
          scale,
        )
        gradients = [
          g if d is None else g + d
          for g, d in zip(gradients, self.decay(values), strict=True)
        ]
        if self.momentum:
          pairs = zip(velocities, gradients, strict=True)
          gradients = velocities = [self.momentum * v + g for v, g in pairs]
        pairs = zip(values, gradients, strict=True)
        values = [value - learning_rate * g for value, g in pairs]
        return number + 1, values, velocities, moments, total + scores

      zeros = [tf.zeros_like(p) for p in parameters] if self.momentum else []
      _, values, _, moments, total = tf.while_loop(
        lambda number, *_: number < self.count,
        step,
        (
          tf.constant(0),
          parameters,
          zeros,
          held[: node_pass.num_statistics],
          tf.zeros([passes.NUM_SCORES]),
        ),
        parallel_iterations=1,
      )
      pairs = zip(parameters, values, strict=True)
      changes = [before - after for before, after in pairs]
      return changes, total * (1.0 / self.count), moments

    return node_pass._replace(gradients=run)
