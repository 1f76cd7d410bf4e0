"""Trains and resumes with real trackers, for `test_real_trackers`.

    tracked_runs.py FOLDER TRACKER

A trainer takes 20 steps and then 20 more. A Keras program fits two times. Then
it prints what the tracker holds as JSON: for each of the two runs {'id': ID,
'metrics': {name: {step: value}}, 'options': {name: value}, 'ended': texts}.
"""

import json
import os
import pathlib
import struct
import sys

import keras
import numpy as np

import terngrad.keras
from terngrad.config import options
from terngrad.config import training
from terngrad.tracking import identities
from terngrad.training import start


def train(folder, steps, log_to, **changes):
  config = options.build(
    training.TrainConfig,
    net='lenet',
    dataset_name='mnist',
    batch_size=4,
    max_steps=steps,
    train_dir=os.fspath(folder),
    benchmark_mode=True,
    image_size=8,
    log_to=log_to,
    **changes,
  )
  return start.train(config, lambda line: None)


def fit(folder, tracker):
  model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
  inner = keras.optimizers.SGD(0.01)
  model.compile(terngrad.keras.CompressedOptimizer(inner, 'ternary'), 'mse')
  log = terngrad.keras.ExperimentLogger(
    folder, tracker, every=2, options={'rule': 'sgd'}
  )
  for _ in range(2):
    model.fit(np.ones([16, 3]), np.ones([16, 1]), 4, verbose=0, callbacks=[log])


def of_mlflow(identity):
  import mlflow

  client = mlflow.MlflowClient()
  run = client.get_run(identity['run_id'])
  histories = {
    name: client.get_metric_history(run.info.run_id, name)
    for name in run.data.metrics
  }
  # Not one step of a metric is there twice.
  assert all(len({m.step for m in h}) == len(h) for h in histories.values())
  return {
    'metrics': {
      name: {one.step: one.value for one in found}
      for name, found in histories.items()
    },
    'options': run.data.params,
    'ended': [run.info.status],
  }


def of_wandb(folder, identity):
  """Reads the files of a run in the order in which they were begun."""
  from wandb.proto import wandb_internal_pb2 as protos

  metrics, shown, ended = {}, {}, []
  for path in sorted(folder.glob('wandb/offline-run-*/*.wandb')):
    assert path.stem == f'run-{identity["id"]}'
    for content in payloads(path.read_bytes()):
      record = protos.Record()
      record.ParseFromString(content)
      for item in record.run.config.update:
        shown[item.key] = json.loads(item.value_json)
      values = {
        item.key or '.'.join(item.nested_key): json.loads(item.value_json)
        for item in record.history.item
      }
      step = values.get('_step')
      for name in (n for n in values if not n.startswith('_')):
        assert step not in metrics.setdefault(name, {})
        metrics[name][step] = values[name]
      if record.HasField('exit'):
        ended.append(record.exit.exit_code)
  return {'metrics': metrics, 'options': shown, 'ended': ended}


def payloads(content):
  """The records of LevelDB's log format, after a header of 7 bytes."""
  block, place, parts = 32768, 7, []
  while place + 7 <= len(content):
    left = block - place % block
    if left < 7:
      place += left
      continue
    length, kind = struct.unpack_from('<HB', content, place + 4)
    parts.append(content[place + 7 : place + 7 + length])
    place += 7 + length
    # 1 is a whole record, 4 the last part of one.
    if kind in (1, 4):
      yield b''.join(parts)
      parts = []


def main(folder, tracker):
  folders = [folder / 'trainer', folder / 'fit']
  for steps in (20, 40):
    train(folders[0], steps, ('tensorboard', tracker))
  fit(folders[1], tracker)
  found = []
  for one in folders:
    text = (one / identities.FILE_NAME).read_text(encoding='utf-8')
    (identity,) = json.loads(text).values()
    found.append(
      of_wandb(one, identity) if tracker == 'wandb' else of_mlflow(identity)
    )
  sys.stdout.write(f'{json.dumps(found)}\n')


if __name__ == '__main__':
  main(pathlib.Path(sys.argv[1]), sys.argv[2])
