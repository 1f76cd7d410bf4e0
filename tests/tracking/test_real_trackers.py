"""Weights & Biases and MLflow hold what metrics.jsonl holds, after a resume."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

from terngrad.training import records

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(
  scope='module',
  params=[
    pytest.param(
      name,
      marks=pytest.mark.skipif(
        importlib.util.find_spec(name) is None,
        reason=f"needs {name}: pip install 'terngrad[{name}]'",
      ),
    )
    for name in ('wandb', 'mlflow')
  ],
)
def found(request, tmp_path_factory):
  """(folder, the runs in the tracker)."""
  folder = tmp_path_factory.mktemp(request.param)
  done = subprocess.run(
    [
      sys.executable,
      '-m',
      'tests.tracking.tracked_runs',
      folder,
      request.param,
    ],
    capture_output=True,
    text=True,
    check=False,
    cwd=ROOT,
    env={
      **os.environ,
      'WANDB_MODE': 'offline',
      'MLFLOW_TRACKING_URI': f'sqlite:///{folder}/mlflow.db',
    },
    timeout=300,
  )
  assert done.returncode == 0, done.stderr
  assert 'expected to log the metrics there' not in done.stderr
  return folder, json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize(('index', 'name'), [(0, 'trainer'), (1, 'fit')])
def test_a_tracker_has_the_names_and_steps_of_the_records(found, index, name):
  folder, runs = found
  expected = {}
  for record in records.read(folder / name):
    step = record.pop('step')
    for key, value in record.items():
      expected.setdefault(key, {})[str(step)] = value
  metrics = runs[index]['metrics']
  assert metrics.keys() == expected.keys()
  for key, values in expected.items():
    assert metrics[key] == pytest.approx(values), key
  assert len(metrics['loss' if index else 'entropy_loss']) == 4


@pytest.mark.slow
def test_a_tracker_shows_options_and_how_the_run_ended(found):
  _, (trained, fitted) = found
  assert str(trained['options']['batch_size']) == '4'
  assert 'worker_hosts' not in trained['options']
  assert fitted['options']['rule'] == 'sgd'
  assert {*trained['ended'], *fitted['ended']} in ({0}, {'FINISHED'})
