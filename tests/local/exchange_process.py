"""One process of `test_exchange`: trains by NumPy and exchanges.

    exchange_process.py FOLDER JSON

TF_CONFIG says which process it is. JSON has the arguments of
`terngrad.LocalSteps`, the number of `phases`, and optionally: `save_after` a
phase, and `resume` there; `begin`, the first phase; `kill`, [rank, phase], ends
this process with SIGKILL before the exchange of a phase; `nan`, [rank, phase],
gives all its arrays NaN there; `ends`, for each rank the phases it takes;
`waits`, [phase, path], waits before the exchange of a phase: when the exchange
before it is complete here, it writes path.RANK, and it goes on when the path
exists; `wide`, a rank whose parameters have another shape. It writes
FOLDER/RANK.npz: the arrays of the start, those after each exchange, and the
last ones.
"""

import json
import os
import pathlib
import signal
import sys
import time

import numpy as np

import terngrad
from tests.local import small


def main(folder, request):
  rank = json.loads(os.environ['TF_CONFIG'])['task']['index']
  folder, request = pathlib.Path(folder), json.loads(request)
  steps = terngrad.LocalSteps(1, **request['options'])
  parameters, statistics = small.begin(rank)
  if request.get('wide') == rank:
    parameters = [np.tile(p, 2) for p in parameters]
  first = request.get('begin', 0)
  backup = folder / f'backup-{rank}.npz'
  if request.get('resume'):
    with np.load(backup) as stored:
      states = dict(stored)
    first = request['save_after']
    parameters = [states.pop(f'local:{i}') for i in range(len(parameters))]
    statistics = [states.pop('statistics')]
    steps.load(states)
  values = steps.start(parameters, statistics)
  count = len(parameters)
  found = {f'start:{i}': value for i, value in enumerate(values)}
  for phase in range(first, request.get('ends', [request['phases']] * 9)[rank]):
    parameters, statistics = small.train(
      values[:count], values[count:], rank, phase
    )
    if request.get('nan') == [rank, phase]:
      parameters, statistics = (
        [array * np.float32('nan') for array in arrays]
        for arrays in (parameters, statistics)
      )
    if request.get('kill') == [rank, phase]:
      os.kill(os.getpid(), signal.SIGKILL)
    wait_phase, path = request.get('waits', [None, None])
    if wait_phase == phase:
      steps.get_states()
      pathlib.Path(f'{path}.{rank}').touch()
      while not os.path.exists(path):
        time.sleep(0.05)
    assert steps.count_step()
    values = steps.exchange(parameters, statistics)
    found |= {f'{phase}:{i}': value for i, value in enumerate(values)}
    if request.get('save_after') == phase + 1:
      local = {f'local:{i}': v for i, v in enumerate(values[:count])}
      np.savez(backup, **steps.get_states(), **local, statistics=values[count])
  values = steps.complete(values[:count], values[count:])
  found |= {f'last:{i}': value for i, value in enumerate(values)}
  np.savez(folder / f'{rank}.npz', **found, **steps.figures)
  assert 'tensorflow' not in sys.modules


if __name__ == '__main__':
  main(*sys.argv[1:])
