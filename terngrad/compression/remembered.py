"""What methods remember for replicas that are not this package's own.

Rows of arrays, one a worker, as a checkpoint of another library keeps them:
nothing is summed over replicas, and what was loaded waits until the gradients
have shown which of it is needed.
"""

import concurrent.futures

import numpy as np
from absl import logging

from terngrad.codec import dealing
from terngrad.codec import method as methods
from terngrad.codec.methods.wrappers import error_feedback
from terngrad.step import replicas
from terngrad.step import states

_WORKERS = 'workers'


class Remembered:
  """The states of this process's workers.

  Attributes:
    devices: for each device a pair: dict of `states.Key` to a list of
      variables, one a worker there; dict of `states.Key` to a shared variable.
  """

  def __init__(self, exchange):
    """Remembers nothing yet.

    Args:
      exchange: `exchange.towers.Towers` or another exchange.
    """
    self._exchange = exchange
    self.devices = [({}, {}) for _ in exchange.devices]
    self._declared = {}
    self._loaded = {}
    # Which of the loaded rows are of this process; None where they are not.
    self._own = None

  def declare(self, part):
    """Makes the variables of a `codec.parts.Part` that are not there yet."""
    declared = {
      states.Key(key.name, part.indices[key.variable]): state
      for key, state in states.declared(part.codec).items()
    }
    fresh = {k: s for k, s in declared.items() if k not in self._declared}
    if not fresh:
      return
    self._declared |= fresh
    apart(lambda: self._make(fresh))

  def _make(self, fresh):
    for index, device in enumerate(self._exchange.devices):
      count = len(self._exchange.workers_of(index))
      workers, shared = self.devices[index]
      of_owner = {
        owner: {k: s for k, s in fresh.items() if s.owner == owner}
        for owner in (methods.WORKER, methods.SHARED)
      }
      shared |= replicas.first_states(of_owner[methods.SHARED], device)
      workers |= states.of_workers(of_owner[methods.WORKER], device, count)
    for key in fresh:
      self._restore(key)

  def arrays(self):
    """All of it, dict of name to array, for a checkpoint.

    Of workers float32 [workers of this process, ...], in their order; `workers`
    says which these are: the first one's number, how many, how many there are.
    """
    if not self._declared:
      return dict(self._loaded)
    found = dict(self._loaded)
    for key in self._declared:
      found[_name(key)] = np.stack(
        [variable.numpy() for variable in self._in_order(key)]
      )
    exchange = self._exchange
    found[_WORKERS] = np.array(
      [exchange.first, exchange.own, exchange.num_workers]
    )
    return found

  def load(self, arrays):
    """Takes what `arrays` returned, in this process or another.

    Where the numbers of workers differ, `codec.dealing` says
    what becomes of the rows.

    Args:
      arrays: dict of name to array.
    """
    self._loaded = {name: np.asarray(array) for name, array in arrays.items()}
    if _WORKERS not in self._loaded:
      return
    first, count, total = self._loaded[_WORKERS]
    exchange = self._exchange
    begin = exchange.first - first
    has_own = 0 <= begin and begin + exchange.own <= count
    self._own = slice(begin, begin + exchange.own)
    if total != exchange.num_workers or not has_own:
      self._own = None
      logging.warning(
        'States of %d of %d workers were saved and there are %d of %d now: '
        'each gets the mean of those, or its range where it has one.',
        *(count, total, exchange.own, exchange.num_workers),
      )
    for key in self._declared:
      self._restore(key)

  def residuals(self, indices):
    """For each worker of this process its variables of error feedback.

    Args:
      indices: of the variables, in the model.
    """
    found = [states.Key(error_feedback.RESIDUAL, index) for index in indices]
    found = [key for key in found if key in self._declared]
    rows = [self._in_order(key) for key in found]
    return [list(row) for row in zip(*rows, strict=True)]

  def _in_order(self, key):
    """The variables of the workers, or the one that they share."""
    workers, shared = zip(*self.devices, strict=True)
    if self._declared[key].owner == methods.SHARED:
      return [shared[0][key]]
    exchange = self._exchange
    count = len(self.devices)
    return [
      workers[exchange.device_of(worker)][key][row // count]
      for row, worker in enumerate(
        range(exchange.first, exchange.first + exchange.own)
      )
    ]

  def _restore(self, key):
    """Assigns what was loaded, if it was."""
    rows = self._loaded.pop(_name(key), None)
    if rows is None:
      return
    if self._declared[key].owner == methods.SHARED:
      for _, shared in self.devices:
        shared[key].assign(rows[0])
      return
    own, exchange = self._own, self._exchange
    if own is None:
      rows = self._for_workers(self._declared[key], rows)
      own = slice(exchange.first, exchange.first + exchange.own)
    rows = rows[own]
    for variable, row in zip(self._in_order(key), rows, strict=True):
      variable.assign(row)

  def _for_workers(self, state, rows):
    """The rows of all workers of now, from those that were saved."""
    if state.dealt == methods.RANGES:
      first, _, total = self._loaded[_WORKERS]
      whole = np.zeros([total, *rows.shape[1:]], np.float32)
      whole[first : first + len(rows)] = rows
      rows = whole
    return dealing.for_workers(state, rows, self._exchange.num_workers)


def apart(make):
  """What a function returns that makes variables, as if called by itself.

  A thread of its own knows neither the graph that is being traced nor the
  strategy, which would make its own kind of variables.
  """
  with concurrent.futures.ThreadPoolExecutor(1) as thread:
    return thread.submit(make).result()


def _name(key):
  return f'{key.name}:{key.variable}'
