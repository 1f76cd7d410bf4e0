"""The recipes as their papers have them, in NumPy, float64.

Written from the equations alone: nothing of terngrad is used. Codes of an
element are compared with limits in float32, as values travel.
"""

import numpy as np


def quantize(values):
  """Q: four bins of 6 / 4 standard deviations, each the mean of its values."""
  values = values.astype(np.float64)
  width = 6 * values.std(ddof=1) / 4 if len(values) > 1 else 0.0
  centred = (values - values.mean()) / (width or 1.0)
  bins = np.clip(np.round(centred + 2), 0, 3)
  found = np.empty_like(values)
  for one in range(4):
    found[bins == one] = values[bins == one].mean() if one in bins else 0
  return found


def top_k(values, chunk, kept):
  """The indices of the largest of each chunk of a flattened variable."""
  chosen = []
  for start in range(0, values.size, chunk):
    part = np.abs(values[start : start + chunk])
    number = -(-kept * part.size // chunk)
    chosen.append(start + np.argsort(-part, kind='stable')[:number])
  return np.sort(np.concatenate(chosen))


class Feedback:
  """e <- beta e + Delta; sends C(e); e <- e - C(e); for one variable."""

  def __init__(self, beta):
    self.beta, self.residual = beta, 0.0

  def send(self, change):
    self.residual = self.beta * self.residual + change
    sent = self.compress(self.residual)
    self.residual = self.residual - sent
    return sent

  def compress(self, values):
    return quantize(values.ravel()).reshape(values.shape)


class SparseFeedback(Feedback):
  """Feedback of Q(TopK(e))."""

  def __init__(self, beta, chunk, kept):
    super().__init__(beta)
    self.chunk, self.kept = chunk, kept

  def compress(self, values):
    flat, found = values.ravel(), np.zeros(values.size)
    chosen = top_k(flat, self.chunk, self.kept)
    found[chosen] = quantize(flat[chosen])
    return found.reshape(values.shape)


class Nesterov:
  """b <- mu b + s; w <- w - eta (mu b + s)."""

  def __init__(self, mu, eta):
    self.mu, self.eta, self.momentum = mu, eta, 0.0

  def move(self, parameter, change):
    self.momentum = self.mu * self.momentum + change
    return parameter - self.eta * (self.mu * self.momentum + change)


def muon_direction(gradient, velocity, beta=0.95):
  """(Orthogonalized g + beta v, v) with v <- beta v + g, by five steps."""
  velocity = beta * velocity + gradient
  x = gradient + beta * velocity
  turned = x.shape[0] > x.shape[1]
  x = x.T if turned else x
  x = x / (np.sqrt((x**2).sum()) + 1e-7)
  for _ in range(5):
    a = x @ x.T
    x = 3.4445 * x + (-4.7750 * a + 2.0315 * (a @ a)) @ x
  return (x.T if turned else x), velocity
