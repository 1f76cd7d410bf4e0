"""Options that training and evaluation share, and how options are made."""

import dataclasses
import os
import tempfile

from slim import errors as slim_errors
from slim.nets import factory as nets
from terngrad import errors

TEMPORARY = tempfile.gettempdir()


def option(default, description, group):
  """A field of a configuration: its default, help text and group of flags."""
  return dataclasses.field(
    default=default, metadata={'help': description, 'group': group}
  )


def is_default(config, name):
  """True where an option has its default, as if it had been left out."""
  defaults = {f.name: f.default for f in dataclasses.fields(config)}
  return getattr(config, name) == defaults[name]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig:
  """What training and evaluation must agree on."""

  dataset_name: str = option('imagenet', 'Data set to read.', 'data')
  data_dir: str = option(
    os.path.join(TEMPORARY, 'mydata'),
    'Folder of the TFRecord files <subset>-*.',
    'data',
  )
  subset: str = option('train', 'Prefix of the files to read.', 'data')
  batch_size: int = option(
    32, 'Examples a step, split evenly over the nodes.', 'data'
  )
  image_size: int = option(224, 'Height and width of the input.', 'data')
  preprocessing: str = option(
    '', 'Name of the preprocessing; empty: that of data set and net.', 'data'
  )
  labels_offset: int = option(
    0, 'Subtract from the labels: 1 leaves the background out.', 'data'
  )
  num_preprocess_threads: int = option(
    4, 'Accepted; TensorFlow tunes its own threads.', 'data'
  )
  num_readers: int = option(
    4, 'Accepted; one reader keeps the order of the examples.', 'data'
  )
  input_queue_memory_factor: int = option(
    16, 'Shuffle this many times 1024 examples together.', 'data'
  )
  net: str = option('alexnet', 'Network to build.', 'model')
  seed: int = option(
    1, 'Of weights, order of examples, dropout and random codes.', 'model'
  )
  weight_decay: float = option(
    0.0005, 'L2 coefficient of the kernels.', 'model'
  )
  dropout_keep_prob: float = option(
    0.5, 'Share of units that dropout keeps.', 'model'
  )
  max_steps: int = option(370000, 'Steps to train.', 'run')
  size_to_binarize: int = option(
    1, 'Gradients with fewer elements than this stay float32.', 'codes'
  )

  def validate(self):
    """Raises `errors.ConfigError` for the first field out of its range."""
    choice('net', self.net, nets.NETS)
    for name in (
      'batch_size',
      'image_size',
      'num_preprocess_threads',
      'num_readers',
      'input_queue_memory_factor',
      'max_steps',
    ):
      at_least(name, getattr(self, name), 1)
    at_least('labels_offset', self.labels_offset, 0)
    at_least('size_to_binarize', self.size_to_binarize, 0)
    at_least('weight_decay', self.weight_decay, 0)
    in_range('dropout_keep_prob', self.dropout_keep_prob, 0, 1)
    if self.dropout_keep_prob == 0:
      raise errors.ConfigError(
        'dropout_keep_prob: expected a share above 0, received 0, which keeps '
        'nothing. Use 1 for no dropout.'
      )
    in_range('seed', self.seed, -(2**63), 2**63 - 1)


def choice(name, value, known):
  """Raises `errors.ConfigError` where a value is not among the known."""
  if value in known:
    return
  hint = slim_errors.did_you_mean(value, known, ' Use one of these.')
  raise errors.ConfigError(
    f'{name}: expected one of {", ".join(sorted(known))}, received '
    f'{value!r}.{hint}'
  )


def at_least(name, value, lowest):
  """Raises `errors.ConfigError` where a number is lower, or not finite."""
  # Written so that NaN fails.
  if not lowest <= value < float('inf'):
    raise errors.ConfigError(
      f'{name}: expected a number >= {lowest}, received {value}. Set '
      f'--{name}={lowest} or more.'
    )


def in_range(name, value, lowest, highest):
  """Raises `errors.ConfigError` where a number is not within."""
  if not lowest <= value <= highest:
    raise errors.ConfigError(
      f'{name}: expected a number from {lowest} to {highest}, received '
      f'{value}. Set --{name} within.'
    )
