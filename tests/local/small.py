"""A small training without a framework, and what its exchanges should give."""

import copy

import numpy as np

SHAPES = (3, 4), (5,)
STATISTICS = (2,)
RATE, MOMENTUM = 0.5, 0.9


def begin(rank=0):
  """(Parameters, statistics) of a process before it joins."""
  rng = np.random.default_rng(rank)
  parameters = [rng.normal(size=s).astype('float32') for s in SHAPES]
  return parameters, [np.full(STATISTICS, rank, 'float32')]


def train(parameters, statistics, rank, phase):
  """The local steps of a phase; each process has other examples."""
  rng = np.random.default_rng([rank, phase])
  parameters = [
    (p - 0.1 * np.sin(p + rng.normal(size=p.shape))).astype('float32')
    for p in parameters
  ]
  return parameters, [s + np.float32(1 + rank + phase) for s in statistics]


class NumpyOuter:
  """Nesterov's momentum: v = m v + g; w -= rate * (g + m v)."""

  def __init__(self, parameters):
    self.parameters = [p.astype('float64') for p in parameters]
    self.velocities = [np.zeros(p.shape) for p in parameters]

  def apply(self, gradients):
    for w, v, g in zip(
      self.parameters, self.velocities, gradients, strict=True
    ):
      v[...] = MOMENTUM * v + g
      w -= RATE * (g + MOMENTUM * v)


def expected(overlap, count, phases, rank=0, adopts=(None, 0, 0)):
  """The parameters of process `rank` after each exchange, float64.

  Written from the description of each overlap, without a codec. `adopts`:
  (phase, a process that begins this phase from the state of another, that one).
  """
  outers = [NumpyOuter(begin()[0]) for _ in range(count)]
  delayed = [np.zeros(s) for s in SHAPES]
  delayed_own = [[np.zeros(s) for s in SHAPES] for _ in range(count)]
  found, kept = [], rank
  for phase in range(phases):
    if phase == adopts[0]:
      outers[adopts[1]] = copy.deepcopy(outers[adopts[2]])
      delayed_own[adopts[1]] = delayed_own[adopts[2]]
    changes = []
    for rank, outer in enumerate(outers):
      before = [p.astype('float32') for p in outer.parameters]
      after, _ = train(before, [], rank, phase)
      changes.append([b - a for b, a in zip(before, after, strict=True)])
    mean = [sum(c[i] for c in changes) / count for i in range(len(SHAPES))]
    for rank, outer in enumerate(outers):
      own = [c / count for c in changes[rank]]
      if overlap == 'none':
        outer.apply(mean)
      elif overlap == 'delayed':
        outer.apply(delayed)
      else:
        terms = zip(own, delayed, delayed_own[rank], strict=True)
        outer.apply([now + late - seen for now, late, seen in terms])
      delayed_own[rank] = own
    delayed = mean
    found.append([p.copy() for p in outers[kept].parameters])
  return found
