"""Runs that continue from checkpoints of an older version.

`train` calls the trainers and `state` reads checkpoints: if an interface
changes, only these functions are adapted.
"""

import hashlib
import json
import pathlib
import shutil
import sys

import keras
import tensorflow as tf

from slim.nets import factory
from terngrad.cluster import devices
from terngrad.config import options as options_lib
from terngrad.config import training as configs
from terngrad.training import start
from tests.bin import normalized
from tests.exchange import processes

FOLDER = pathlib.Path(__file__).parent / 'checkpoints'
# Steps before the checkpoint, and of the whole run.
FIRST, LAST = 3, 8

_TOWERS = {'num_gpus': 2, 'num_nodes': 4}
_BIDIRECTIONAL = {
  'exchange': 'collective',
  'codec': 'error_feedback+bidirectional+ternary',
  'num_nodes': 4,
}
# What differs from `_config`, and of how many processes.
RUNS = {
  'momentum': (1, _TOWERS),
  'adam': (1, _TOWERS | {'optimizer': 'adam', 'quantize_logits': True}),
  'float16': (1, _TOWERS | {'dtype': 'float16'}),
  'per_device': (1, _TOWERS | {'bn_statistics': 'per_device'}),
  'save_tower': (1, _TOWERS | {'save_tower': 0}),
  'both_ways_of_one': (1, _BIDIRECTIONAL),
  'both_ways_of_two': (2, _BIDIRECTIONAL),
}

_NAME = 'tiny'


def _build(num_classes, image_size, channels, weight_decay, seed, **unused):
  """Dropout, a normalized convolution and the logits: 600 parameters."""
  del unused
  make = normalized.layers_of(weight_decay, seed)
  images = keras.Input((image_size, image_size, channels), name='images')
  # Makes examples differ, whose images do not.
  x = keras.layers.Dropout(0.5, seed=seed, name='dropout')(images)
  x = make.conv(x, 'conv1', 3, 3, strides=2)
  x = keras.layers.Flatten(name='flatten')(x)
  return keras.Model(images, make.logits(x, num_classes), name=_NAME)


def train(name, train_dir, steps, index=0, hosts=('127.0.0.1:1',)):
  """Trains a run until `steps`; continues the run in train_dir, if any.

  Args:
    name: key of `RUNS`.
    train_dir: path.
    steps: of the whole run.
    index: of this process.
    hosts: addresses of all.
  """
  options = dict(RUNS[name][1])
  if options.get('exchange') == 'collective':
    options |= {'worker_hosts': ','.join(hosts), 'task_id': index}
  config = options_lib.build(
    configs.TrainConfig,
    dataset_name='mnist',
    benchmark_mode=True,
    net=_NAME,
    image_size=8,
    batch_size=8,
    grad_bits=1,
    clip_factor=2.5,
    train_dir=str(train_dir),
    max_steps=steps,
    save_iter=FIRST,
    **options,
  )
  known = factory.NETS
  factory.NETS[_NAME] = factory.Net(_build, 8, default_channels=1)
  try:
    start.train(config, lambda line: None)
  finally:
    del known[_NAME]


def train_processes(name, train_dir, steps):
  """`train` in all processes of the run."""
  count = RUNS[name][0]
  if count == 1:
    train(name, train_dir, steps)
    return
  hosts = processes.addresses(count)
  with processes.Processes() as running:
    for index in range(count):
      request = [name, str(train_dir), steps, index, hosts]
      running.start('-m', __name__, json.dumps(request))
    for ended in running.wait():
      assert ended.code == 0, ended.log[-5000:]


def digest(train_dir, steps):
  """Returns the digest of the devices' variables in a checkpoint.

  Residuals change these variables some steps later.
  """
  found = hashlib.sha256()
  values = state(train_dir, steps)
  assert len(values) > 10
  for name in sorted(values):
    found.update(name.encode() + b'\0' + values[name].tobytes())
  return found.hexdigest()[:16]


def state(train_dir, steps):
  """The variables of all stored devices."""
  reader = tf.train.load_checkpoint(f'{train_dir}/model.ckpt-{steps}')
  names = reader.get_variable_to_shape_map()
  return {
    name: reader.get_tensor(name) for name in names if name.startswith('tower_')
  }


def put_back(name, train_dir):
  """Copies the recorded checkpoint to a new folder."""
  shutil.copytree(FOLDER / name, train_dir)


if __name__ == '__main__':
  devices.configure(2)
  train(*json.loads(sys.argv[1]))
