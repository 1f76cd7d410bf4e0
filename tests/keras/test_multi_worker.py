"""`fit` in two processes: codes travel between them; replicas stay equal."""

import json

import keras
import numpy as np
import pytest

import terngrad.keras
from tests.exchange import processes
from tests.keras import small

PROGRAM = 'tests/keras/worker_process.py'


def run(folder, *codecs):
  """For each codec and process a list of arrays, and the bits an element."""
  hosts = processes.addresses(2)
  with processes.Processes() as started:
    for rank in range(2):
      task = {'type': 'worker', 'index': rank}
      started.start(
        processes.ROOT / PROGRAM,
        folder,
        *codecs,
        TF_CONFIG=json.dumps({'cluster': {'worker': hosts}, 'task': task}),
      )
    for ended in started.wait():
      assert ended.code == 0, ended.log
  found = []
  for number in range(len(codecs)):
    of_processes = []
    for rank in range(2):
      with np.load(folder / f'{number}-{rank}.npz') as stored:
        names = sorted(
          (n for n in stored if n != 'bits'), key=lambda n: int(n[4:])
        )
        of_processes.append(([stored[n] for n in names], stored['bits'][0]))
    found.append(of_processes)
  return found


@pytest.mark.cluster
@pytest.mark.slow
def test_processes_are_replicas(tmp_path):
  codecs = 'none', 'identity', 'ternary', small.FEEDBACK
  plain, identity, ternary, feedback = run(tmp_path, *codecs)
  for (first, _), (second, _) in (plain, identity, ternary):
    small.assert_equal(first, second)
  small.assert_equal(identity[0][0], plain[0][0])
  assert 0 < ternary[0][1] < 6 < 32 < identity[0][1]

  # Through a file in between, the same bits as two replicas of one process.
  whole = small.compiled(small.FEEDBACK, replicas=2)
  small.fit(whole, epochs=2)
  expected = small.weights(whole)
  states = len(whole.optimizer.compressor.get_states().keys() - {'variables'})
  for rank, (arrays, _) in enumerate(feedback):
    small.assert_equal(arrays[:-states], expected[:-states])
    *rows, workers = arrays[-states:]
    assert list(workers) == [rank, 1, 2]
    for own, all_rows in zip(rows, expected[-states:-1], strict=True):
      np.testing.assert_array_equal(own, all_rows[rank : rank + 1])


def test_an_unknown_version_of_keras_is_not_patched(monkeypatch, caplog):
  caplog.set_level('INFO', 'absl')
  monkeypatch.setattr(keras, '__version__', '3.99.0')
  assert not terngrad.keras.repair_multi_worker()
  assert 'Keras 3.99.0 is not patched' in caplog.text
