"""Options of the data and of the network, for training and evaluation."""

import dataclasses
import os
import tempfile

from slim import spelling
from terngrad import aliases
from terngrad import errors
from terngrad import lazy
from terngrad.config import options

catalog = lazy.module('slim.datasets.catalog')
nets = lazy.module('slim.nets.factory')
initializers = lazy.module('slim.nets.blocks.initializers')

__getattr__ = aliases.renamed_names(
  __name__,
  Data='DataOptions',
  Model='ModelOptions',
  TrainModel='TrainModelOptions',
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataOptions(options.ConfigPart):
  """Options of the data set and of the batches."""

  dataset_name: str = options.option(
    'imagenet',
    'Data set to read.',
    shared=options.WORKERS,
    on_resume=options.REFUSED,
  )
  data_dir: str = options.option(
    os.path.join(tempfile.gettempdir(), 'mydata'),
    'Folder of the TFRecord files <subset>-*.',
    shared=options.LOCAL,
    on_resume=options.IGNORED,
  )
  subset: str = options.option(
    'train',
    'Prefix of the files to read.',
    shared=options.WORKERS,
    on_resume=options.REFUSED,
  )
  batch_size: int = options.option(
    32,
    'Examples per step, split evenly over the nodes of all processes.',
    shared=options.WORKERS,
    on_resume=options.REFUSED,
    least=1,
  )
  image_size: int = options.option(
    224,
    'Height and width of the input; text has its own length.',
    shared=options.WORKERS,
    least=1,
  )
  preprocessing: str = options.option(
    '',
    'Name of the preprocessing; empty: the default of data set and net. caffe2 '
    'has options: caffe2:mean=128,std=128,scale=256,mirror=true.',
    shared=options.WORKERS,
  )
  num_classes: int = options.option(
    0,
    'Number of classes, for data that does not define it; 0: as defined there.',
    shared=options.WORKERS,
    least=0,
  )
  labels_offset: int = options.option(
    0,
    'Number to subtract from all labels; 1 removes the background class.',
    shared=options.WORKERS,
    least=0,
  )
  num_preprocess_threads: int = options.option(
    4,
    'Accepted without effect: TensorFlow sets the number of threads.',
    on_resume=options.IGNORED,
    least=1,
  )
  num_readers: int = options.option(
    4,
    'Accepted without effect: one reader keeps the order of the examples.',
    on_resume=options.IGNORED,
    least=1,
  )
  corpus: str = options.option(
    '',
    'Digest that the text in --data_dir must have, as terngrad convert text '
    'prints it; empty: any.',
    shared=options.WORKERS,
    on_resume=options.IGNORED,
  )
  input_queue_memory_factor: int = options.option(
    16,
    'Size of the shuffle buffer, in units of 1024 examples.',
    shared=options.WORKERS,
    least=1,
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelOptions(options.ConfigPart):
  """Options of the network that training and evaluation share."""

  net: str = options.option(
    'alexnet',
    'Network to build. Its options, if it has any, follow a colon: '
    'resnet_v1_50:first_kernel=3,first_stride=1,bias=true,last_pool=4.',
    shared=options.WORKERS,
    on_resume=options.REFUSED,
  )
  seed: int = options.option(
    1,
    'Random seed of weights, order of examples, dropout and random codes.',
    shared=options.WORKERS,
    on_resume=options.REFUSED,
    least=-(2**63),
    most=2**63 - 1,
  )
  weight_decay: float = options.option(
    0.0005, 'L2 coefficient of the kernels.', least=0
  )
  dropout_keep_prob: float = options.option(
    0.5, 'Share of units that dropout keeps.', least=0, most=1
  )

  def validate(self) -> None:
    """Raises `errors.ConfigError` for the first invalid option."""
    super().validate()
    options.choice('net', spelling.split(self.net)[0], nets.NETS)
    with errors.as_config_error():
      nets.find_net(self.net)
    options.refuse(
      self.dropout_keep_prob == 0,
      'dropout_keep_prob: expected a share above 0, received 0, which keeps '
      'nothing. Use 1 for no dropout.',
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainModelOptions(ModelOptions):
  """Options of the network in training: loss, precision, statistics."""

  label_smoothing: float = options.option(
    -1.0,
    'Share of each label that is spread evenly over all classes; -1: the '
    'default of the net, 0.1 for inception_v3.',
    least=0,
    most=1,
  )
  aux_loss_weight: float = options.option(
    -1.0,
    'Weight of the auxiliary loss, if the net has auxiliary logits; -1: the '
    'default of the net, 0.4.',
    least=0,
  )
  dtype: str = options.option(
    'float32',
    'Type in which layers compute: float32, bfloat16 or float16. Parameters, '
    'logits and gradients are float32. float16 uses loss scaling, which skips '
    'a step whose gradients are not finite.',
  )
  batch_norm_decay: float = options.option(
    -1.0,
    'Decay of the moving statistics of batch normalization (Keras: momentum), '
    'from 0 to below 1; -1: the default of the net, 0.9997 for most. Runs of '
    'fewer than some 10,000 steps need less: 0.9 for hundreds, 0.99 for '
    'thousands of steps.',
    least=0,
    most=1,
  )
  initializer: str = options.option(
    '',
    'Initializer of the kernels: normal:stddev=0.01, '
    'truncated_normal:stddev=0.01, xavier or he; empty: the default of the '
    'net.',
    on_resume=options.IGNORED,
  )

  def validate(self) -> None:
    """Raises `errors.ConfigError` for the first invalid option."""
    super().validate()
    if self.initializer:
      with errors.as_config_error():
        initializers.parse(self.initializer)
    options.refuse(
      self.batch_norm_decay == 1,
      'batch_norm_decay: expected a number below 1, received 1, with which the '
      'moving statistics would never change. Use 0.9997, or -1 for the default '
      'of the net.',
    )
    options.choice('dtype', self.dtype, ('float32', 'bfloat16', 'float16'))


def check_inputs(data: DataOptions, model: ModelOptions) -> None:
  """Raises `errors.ConfigError` if the net is not for the kind of data."""
  with errors.as_config_error():
    is_text = catalog.find(data.dataset_name).storage == 'tokens'
    takes_tokens = nets.find_net(model.net).takes_tokens
  kinds = {True: 'text', False: 'images'}
  options.refuse(
    is_text != takes_tokens,
    f'net: expected a net for {kinds[is_text]}, as in {data.dataset_name}, '
    f'received {model.net}, which takes {kinds[takes_tokens]}. Choose another '
    '--net or another data set.',
  )
  options.refuse(
    bool(data.corpus) and not is_text,
    f'corpus: expected it to be left out with {data.dataset_name}, received '
    f'{data.corpus}: only text has one. Leave it out.',
  )
