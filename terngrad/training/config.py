"""What a run is: one frozen value a program, with its own documentation.

Every field is also a flag of the programs: `program.flags` reads names, types,
defaults and help from here, so that there is one list of them. Names and
defaults are the 2017 code's where it had them.
"""

import dataclasses
import difflib
import os
import tempfile

from slim.nets import factory as nets
from terngrad.codec import contract
from terngrad.codec import registry
from terngrad.training import errors
from terngrad.training import optimizers
from terngrad.training import schedules

_TEMPORARY = tempfile.gettempdir()


def option(default, description, group):
  """A field of a configuration: its default, help text and group of flags."""
  return dataclasses.field(
    default=default, metadata={'help': description, 'group': group}
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig:
  """What training and evaluation must agree on."""

  dataset_name: str = option('imagenet', 'Data set to read.', 'data')
  data_dir: str = option(
    os.path.join(_TEMPORARY, 'mydata'),
    'Folder of the TFRecord files <subset>-*.',
    'data',
  )
  subset: str = option('train', 'Prefix of the files to read.', 'data')
  batch_size: int = option(
    32, 'Examples a step, split evenly over the nodes.', 'data'
  )
  image_size: int = option(224, 'Height and width of the input.', 'data')
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
    _choice('net', self.net, nets.NETS)
    for name in (
      'batch_size',
      'image_size',
      'num_preprocess_threads',
      'num_readers',
      'input_queue_memory_factor',
      'max_steps',
    ):
      at_least(name, getattr(self, name), 1)
    at_least('size_to_binarize', self.size_to_binarize, 0)
    at_least('weight_decay', self.weight_decay, 0)
    _range('dropout_keep_prob', self.dropout_keep_prob, 0, 1)
    if self.dropout_keep_prob == 0:
      raise errors.ConfigError(
        'dropout_keep_prob: expected a share above 0, received 0, which keeps '
        'nothing. Use 1 for no dropout.'
      )
    _range('seed', self.seed, -(2**63), 2**63 - 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig(ModelConfig):
  """A training run on the devices of one machine."""

  train_dir: str = option(
    os.path.join(_TEMPORARY, 'dataset_train'),
    'Folder for checkpoints and records; a run that stands there continues.',
    'run',
  )
  overwrite: bool = option(
    False, 'Delete the run that stands in --train_dir and begin anew.', 'run'
  )
  save_iter: int = option(
    5000, 'Steps between checkpoints and histograms.', 'run'
  )
  benchmark_mode: bool = option(
    False, 'Constant images and random labels: no data is read.', 'run'
  )
  log_device_placement: bool = option(
    False, 'Log the device of every operation.', 'run'
  )
  num_gpus: int = option(
    1, 'Devices; logical CPU devices where there is no GPU.', 'devices'
  )
  num_nodes: int = option(
    -1,
    'Virtual nodes, spread over the devices; -1 for one a device.',
    'devices',
  )
  save_tower: int = option(
    -1,
    "Store the parameters of this node's device only; -1 for every device's.",
    'devices',
  )
  pretrained_model_checkpoint_path: str = option(
    '',
    'Checkpoint prefix, or folder of checkpoints, to start from.',
    'run',
  )
  fine_tune: bool = option(
    False,
    'Leave the logits of the pretrained checkpoint out and start at step 0.',
    'run',
  )
  optimizer: str = option('momentum', 'gd, momentum, adam or rmsprop.', 'rate')
  initial_learning_rate: float = option(0.01, 'Learning rate.', 'rate')
  learning_rate_decay_type: str = option(
    'exponential', 'fixed, exponential or polynomial; adam is fixed.', 'rate'
  )
  num_epochs_per_decay: float = option(
    20.0, 'Epochs between two drops of the exponential decay.', 'rate'
  )
  learning_rate_decay_factor: float = option(
    0.1, 'Factor of a drop of the exponential decay.', 'rate'
  )
  momentum: float = option(0.9, 'Of momentum and rmsprop.', 'rate')
  codec: str = option(
    '',
    'Gradient code, NAME[:option=value,...], of '
    f'{", ".join(sorted(registry.CODECS))}; empty: by --grad_bits. For an '
    'all-reduce of integers ternary:packing=radix,workers=N.',
    'codes',
  )
  grad_bits: int = option(
    32, '1 for ternary gradients, 32 for float32.', 'codes'
  )
  clip_factor: float = option(
    0.0,
    'Clip gradients at this many standard deviations, 2.5 in the paper; 0 does '
    'not clip. --codec=ternary clips at 2.5 where neither this nor its own '
    'option is set; --codec=ternary:clip_factor=0 does not.',
    'codes',
  )
  scaler_rule: str = option(
    'max_clipped',
    "max_clipped, the paper's: the largest clipped magnitude; stddev, the 2017 "
    "code's: clip_factor standard deviations.",
    'codes',
  )
  packing: str = option(
    'base3',
    'base3, 1.6 bits an element; two_bit, 2; bitmap_sign and huffman243, about '
    '1.3 and 1.2, by the gradients. For radix see --codec.',
    'codes',
  )
  quantize_logits: bool = option(
    False, 'Code the gradients of the logits layer too.', 'codes'
  )
  floating_grad_epoch: int = option(
    0,
    'k > 0: float32 gradients in the last epoch of every k; 1 is always '
    'float32.',
    'codes',
  )
  use_encoding: bool = option(
    False, 'Accepted; codes are always packed and sent.', 'codes'
  )

  @property
  def num_workers(self):
    """Nodes that compute gradients: virtual ones, or one a device."""
    return self.num_nodes if self.num_nodes > 0 else self.num_gpus

  def validate(self):
    """Raises `errors.ConfigError` for the first field out of its range."""
    super().validate()
    _choice('optimizer', self.optimizer, optimizers.OPTIMIZERS)
    decay = 'learning_rate_decay_type'
    _choice(decay, self.learning_rate_decay_type, schedules.DECAY_TYPES)
    at_least('num_gpus', self.num_gpus, 1)
    at_least('save_iter', self.save_iter, 1)
    at_least('clip_factor', self.clip_factor, 0)
    at_least('floating_grad_epoch', self.floating_grad_epoch, 0)
    at_least('initial_learning_rate', self.initial_learning_rate, 0)
    at_least('num_epochs_per_decay', self.num_epochs_per_decay, 0)
    at_least('learning_rate_decay_factor', self.learning_rate_decay_factor, 0)
    _range('momentum', self.momentum, 0, 1)
    self._check_pretrained()
    at_least('save_tower', self.save_tower, -1)
    if self.save_tower >= self.num_workers:
      raise errors.ConfigError(
        f'save_tower: expected -1 or a node from 0 to {self.num_workers - 1}, '
        f'received {self.save_tower}. Ask for fewer, or set --num_nodes.'
      )
    if self.batch_size % self.num_workers:
      below = self.batch_size - self.batch_size % self.num_workers
      raise errors.ConfigError(
        f'batch_size: expected a multiple of the {self.num_workers} nodes, '
        f'received {self.batch_size}. Use --batch_size='
        f'{below + self.num_workers}, or another --num_nodes.'
      )
    self.gradient_code()

  def _check_pretrained(self):
    path = self.pretrained_model_checkpoint_path
    if self.fine_tune and not path:
      raise errors.ConfigError(
        'fine_tune: expected --pretrained_model_checkpoint_path beside it, '
        'received none. Name the checkpoint to start from.'
      )
    folder = os.path.realpath(self.train_dir)
    inside = os.path.realpath(path).startswith(folder + os.sep)
    if self.overwrite and path and (inside or os.path.realpath(path) == folder):
      raise errors.ConfigError(
        'overwrite: expected --pretrained_model_checkpoint_path outside of '
        f'--train_dir, received {path}, which would be deleted. Choose another '
        '--train_dir.'
      )

  def gradient_code(self) -> contract.Codec:
    """The codec for gradients that no policy leaves in float32.

    Raises:
      errors.ConfigError: the flags name none, or contradict each other.
    """
    try:
      codec = registry.parse(self._codec_text())
    except errors.ConfigError:
      raise
    except ValueError as error:
      raise errors.ConfigError(str(error)) from error
    limit = codec.packing.max_workers
    if limit is not None and limit < self.num_workers:
      raise errors.ConfigError(
        f'codec: expected a code for the {self.num_workers} nodes, received '
        f'--codec={self.codec}, which adds {limit} at most. Say '
        f'workers={self.num_workers} in it.'
      )
    return codec

  def _codec_text(self):
    if not self.codec:
      return self._codec_text_of_grad_bits()
    name, _, rest = self.codec.partition(':')
    if self.grad_bits not in (32, 1) or (self.grad_bits == 1) > (
      name == 'ternary'
    ):
      raise errors.ConfigError(
        f'codec: expected --grad_bits to be left out beside --codec={name}, '
        f'received {self.grad_bits}. Choose the code by one of the two.'
      )
    registry.parse(self.codec)  # what it says must be right by itself
    given = dict(
      item.partition('=')[::2] for item in filter(None, rest.split(','))
    )
    defaults = {f.name: f.default for f in dataclasses.fields(self)}
    for flag in ('clip_factor', 'scaler_rule', 'packing'):
      value = getattr(self, flag)
      if value == defaults[flag]:
        continue
      if name != 'ternary' or type(value)(given.get(flag, value)) != value:
        raise errors.ConfigError(
          f'{flag}: expected it to agree with --codec={self.codec}, received '
          f'{value}. Say it once, as --codec=ternary:{flag}={value}.'
        )
      given[flag] = value
    options = ','.join(f'{k}={v}' if v else k for k, v in given.items())
    return f'{name}:{options}'

  def _codec_text_of_grad_bits(self):
    if self.grad_bits == 32:
      return 'identity'
    if self.grad_bits == 1:
      return (
        f'ternary:clip_factor={self.clip_factor},'
        f'scaler_rule={self.scaler_rule},packing={self.packing}'
      )
    if self.grad_bits in (2, 4, 8):
      raise errors.ConfigError(
        f'grad_bits: expected 1 or 32, received {self.grad_bits}, which is '
        'kept for a row-wise quantizer that does not exist yet. Use '
        '--grad_bits=1 or --codec=fp16.'
      )
    raise errors.ConfigError(
      f'grad_bits: expected 1 (ternary) or 32 (float32), received '
      f'{self.grad_bits}. Use one of them, or choose a code with --codec.'
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvalConfig(ModelConfig):
  """An evaluation of the checkpoints that a training run writes."""

  subset: str = option('validation', 'Prefix of the files to read.', 'data')
  eval_dir: str = option(
    os.path.join(_TEMPORARY, 'dataset_eval'), 'Folder for records.', 'run'
  )
  checkpoint_dir: str = option(
    os.path.join(_TEMPORARY, 'dataset_train'),
    'Folder whose newest checkpoint is evaluated.',
    'run',
  )
  eval_interval_secs: int = option(
    3600, 'Seconds between two looks for a new checkpoint.', 'run'
  )
  run_once: bool = option(
    False, 'Evaluate the newest checkpoint and end.', 'run'
  )
  num_examples: int = option(
    50000, "Examples to score at most; every one of the subset's once.", 'data'
  )
  device: str = option(
    '/gpu:0', 'Device to run on; the CPU where it does not exist.', 'devices'
  )
  tower: int = option(
    -1, "Read this node's parameters; -1: those that are there.", 'devices'
  )
  restore_avg_var: bool = option(
    True, 'Read the moving averages of the parameters.', 'model'
  )

  def validate(self):
    """Raises `errors.ConfigError` for the first field out of its range."""
    super().validate()
    at_least('eval_interval_secs', self.eval_interval_secs, 0)
    at_least('num_examples', self.num_examples, 1)
    at_least('tower', self.tower, -1)
    if os.path.realpath(self.eval_dir) == os.path.realpath(self.checkpoint_dir):
      raise errors.ConfigError(
        'eval_dir: expected another folder than --checkpoint_dir, received '
        f'{self.eval_dir} for both; the records would mix. Choose another '
        '--eval_dir.'
      )


def _choice(name, value, known):
  if value in known:
    return
  close = difflib.get_close_matches(str(value), known, n=1)
  hint = f' Did you mean {close[0]!r}?' if close else ' Use one of these.'
  raise errors.ConfigError(
    f'{name}: expected one of {", ".join(sorted(known))}, received '
    f'{value!r}.{hint}'
  )


def at_least(name, value, lowest):
  """Raises `errors.ConfigError` unless lowest <= value < infinity."""
  # Written so that NaN fails.
  if not lowest <= value < float('inf'):
    raise errors.ConfigError(
      f'{name}: expected a number >= {lowest}, received {value}. Set '
      f'--{name}={lowest} or more.'
    )


def _range(name, value, lowest, highest):
  if not lowest <= value <= highest:
    raise errors.ConfigError(
      f'{name}: expected a number from {lowest} to {highest}, received '
      f'{value}. Set --{name} within.'
    )
