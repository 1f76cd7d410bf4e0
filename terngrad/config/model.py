"""Options that training and evaluation share."""

import dataclasses
import os
import tempfile

from terngrad import errors
from terngrad import lazy
from terngrad.config import options

nets = lazy.module('slim.nets.factory')

TEMPORARY = tempfile.gettempdir()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig:
  """What training and evaluation must agree on."""

  dataset_name: str = options.option(
    'imagenet',
    'Data set to read.',
    'data',
    shared=options.WORKERS,
    on_resume=options.KEPT,
  )
  data_dir: str = options.option(
    os.path.join(TEMPORARY, 'mydata'),
    'Folder of the TFRecord files <subset>-*.',
    'data',
    shared=options.OWN,
    on_resume=options.FREE,
  )
  subset: str = options.option(
    'train',
    'Prefix of the files to read.',
    'data',
    shared=options.WORKERS,
    on_resume=options.KEPT,
  )
  batch_size: int = options.option(
    32,
    'Examples a step, split evenly over the nodes.',
    'data',
    shared=options.WORKERS,
    on_resume=options.KEPT,
  )
  image_size: int = options.option(
    224, 'Height and width of the input.', 'data', shared=options.WORKERS
  )
  preprocessing: str = options.option(
    '',
    'Name of the preprocessing; empty: that of data set and net.',
    'data',
    shared=options.WORKERS,
  )
  labels_offset: int = options.option(
    0,
    'Subtract from the labels: 1 leaves the background out.',
    'data',
    shared=options.WORKERS,
  )
  num_preprocess_threads: int = options.option(
    4,
    'Accepted; TensorFlow tunes its own threads.',
    'data',
    on_resume=options.FREE,
  )
  num_readers: int = options.option(
    4,
    'Accepted; one reader keeps the order of the examples.',
    'data',
    on_resume=options.FREE,
  )
  input_queue_memory_factor: int = options.option(
    16,
    'Shuffle this many times 1024 examples together.',
    'data',
    shared=options.WORKERS,
  )
  net: str = options.option(
    'alexnet',
    'Network to build.',
    'model',
    shared=options.WORKERS,
    on_resume=options.KEPT,
  )
  seed: int = options.option(
    1,
    'Of weights, order of examples, dropout and random codes.',
    'model',
    shared=options.WORKERS,
    on_resume=options.KEPT,
  )
  weight_decay: float = options.option(
    0.0005, 'L2 coefficient of the kernels.', 'model'
  )
  dropout_keep_prob: float = options.option(
    0.5, 'Share of units that dropout keeps.', 'model'
  )
  max_steps: int = options.option(
    370000, 'Steps to train.', 'run', on_resume=options.TOLD
  )
  size_to_binarize: int = options.option(
    1, 'Gradients with fewer elements than this stay float32.', 'codes'
  )

  def validate(self):
    """Raises `errors.ConfigError` for the first field out of its range."""
    options.choice('net', self.net, nets.NETS)
    for name in (
      'batch_size',
      'image_size',
      'num_preprocess_threads',
      'num_readers',
      'input_queue_memory_factor',
      'max_steps',
    ):
      options.at_least(name, getattr(self, name), 1)
    options.at_least('labels_offset', self.labels_offset, 0)
    options.at_least('size_to_binarize', self.size_to_binarize, 0)
    options.at_least('weight_decay', self.weight_decay, 0)
    options.in_range('dropout_keep_prob', self.dropout_keep_prob, 0, 1)
    if self.dropout_keep_prob == 0:
      raise errors.ConfigError(
        'dropout_keep_prob: expected a share above 0, received 0, which keeps '
        'nothing. Use 1 for no dropout.'
      )
    options.in_range('seed', self.seed, -(2**63), 2**63 - 1)
