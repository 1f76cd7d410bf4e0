"""Streaming DiLoCo as its paper has it, in NumPy: local step by local step.

Douillard et al., https://arxiv.org/abs/2501.18512, algorithm 2. Plain DiLoCo is
the case of one fragment and no overlap.
"""

import numpy as np
import tensorflow as tf

from terngrad.step import passes

BETA1, BETA2, EPSILON = 0.9, 0.95, 1e-8


class AdamW:
  """An inner optimizer that stays."""

  stays = True

  def __init__(self, shapes):
    self.first = [np.zeros(shape) for shape in shapes]
    self.second = [np.zeros(shape) for shape in shapes]
    self.count = 0

  def __call__(self, values, gradients, decays, rate):
    self.count += 1
    for i, (g, d) in enumerate(zip(gradients, decays, strict=True)):
      self.first[i] = BETA1 * self.first[i] + (1 - BETA1) * g
      self.second[i] = BETA2 * self.second[i] + (1 - BETA2) * g**2
      first = self.first[i] / (1 - BETA1**self.count)
      second = self.second[i] / (1 - BETA2**self.count)
      change = first / (np.sqrt(second) + EPSILON)
      values[i] = values[i] - rate * (change + d)


class Momentum:
  """An inner optimizer that stays."""

  stays = True

  def __init__(self, shapes):
    self.velocity = [np.zeros(shape) for shape in shapes]

  def __call__(self, values, gradients, decays, rate):
    for i, (g, d) in enumerate(zip(gradients, decays, strict=True)):
      self.velocity[i] = 0.9 * self.velocity[i] + g + d
      values[i] = values[i] - rate * self.velocity[i]


class Descent:
  """One that remembers nothing."""

  stays = True

  def __init__(self, shapes):
    del shapes

  def __call__(self, values, gradients, decays, rate):
    for i, (g, d) in enumerate(zip(gradients, decays, strict=True)):
      values[i] = values[i] - rate * (g + d)


class ResetMomentum(Momentum):
  """One whose velocity is 0 again after a fragment was mixed in."""

  stays = False


class Run:
  """All workers, and the parameters that the outer optimizer moves."""

  def __init__(self, training, inner, *, fragments, every, overlap, mixing):
    self.training, self.every = training, every
    self.fragments, self.overlap, self.mixing = fragments, overlap, mixing
    self.outer = [v.numpy().astype(float) for v in training.plan.trainable]
    shapes = [value.shape for value in self.outer]
    self.velocity = [np.zeros(shape) for shape in shapes]
    count = training.exchange.num_workers
    self.workers = [list(self.outer) for _ in range(count)]
    self.inner = [inner(shapes) for _ in range(count)]
    # Losses since the last exchange, and what that one told.
    self.losses, self.mean_losses = [[] for _ in range(count)], []
    self.decay = passes.ModelPass(training.model, training.plan).decay.gradients
    self.time = 0

  def step(self, batches, rate, outer_rate, outer_momentum):
    """A local step of all workers, each on its batch, and what is due."""
    self.time += 1
    for values, inner, batch, losses in zip(
      self.workers, self.inner, batches, self.losses, strict=True
    ):
      tensors = [tf.constant(v, tf.float32) for v in values]
      key = tf.zeros([2], tf.uint32)
      gradients, scores, _ = self.training.node_pass.gradients(
        tensors, [], *batch, key
      )
      losses.append(float(scores[0]))
      decays = [0.0 if d is None else d.numpy() for d in self.decay(tensors)]
      inner(values, [g.numpy() for g in gradients], decays, rate)
    for turn, fragment in enumerate(self.fragments):
      # Fragment p is mixed in after (p + 1) H / F steps, and then every H.
      offset = (turn + 1) * self.every // len(self.fragments) - self.overlap
      if self._due(offset):
        self._update(fragment, outer_rate, outer_momentum)
      if self._due(offset + self.overlap):
        self._merge(fragment)

  def _due(self, offset):
    since = self.time - offset
    return since >= 0 and since % self.every == 0

  def _update(self, fragment, rate, momentum):
    """The outer optimizer, with Nesterov's momentum."""
    self.mean_losses = [np.mean(losses) for losses in self.losses]
    self.losses = [[] for _ in self.workers]
    for i in fragment:
      mean = np.mean([values[i] for values in self.workers], axis=0)
      change = self.outer[i] - mean
      self.velocity[i] = momentum * self.velocity[i] + change
      self.outer[i] = self.outer[i] - rate * (
        change + momentum * self.velocity[i]
      )

  def _merge(self, fragment):
    weight = self.mixing if self.overlap else 0.0
    for number, inner in enumerate(self.inner):
      if not inner.stays:
        self.inner[number] = type(inner)([v.shape for v in self.outer])
    for values in self.workers:
      for i in fragment:
        values[i] = weight * values[i] + (1 - weight) * self.outer[i]
