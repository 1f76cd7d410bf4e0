"""Defaults of the training and evaluation commands of each data set.

To add the commands of a data set, add one entry to `PRESETS`.
"""

from typing import Any
from typing import NamedTuple


class Preset(NamedTuple):
  """The defaults of a data set's commands, and parts of their --help.

  Attributes:
    title: name of the data set, for --help.
    example: flags of an example of training, after the directories.
    notes: the last paragraph of the trainer's --help.
    model: defaults of training and evaluation.
    training: further defaults of training.
    servers: further defaults of training with parameter servers; None for
      those in `training`.
    evaluation: further defaults of evaluation.
    scored: what evaluation scores, for --help.
  """

  title: str
  example: str
  notes: str
  model: dict[str, Any]
  training: dict[str, Any] = {}
  servers: dict[str, Any] | None = None
  evaluation: dict[str, Any] = {}
  scored: str = ''


_TERNARY = '--grad_bits=1 --clip_factor=2.5 --quantize_logits=True'
_SMALL = {'image_size': 28, 'max_steps': 10000, 'net': 'lenet'}
_TEST = {'num_examples': 10000, 'subset': 'test'}
_ADAM = {'initial_learning_rate': 0.0002, 'optimizer': 'adam'}

PRESETS = {
  'mnist': Preset(
    'MNIST',
    f'--num_gpus=2 --num_nodes=4 \\\n      {_TERNARY}',
    'Fill D with:\n  terngrad convert dataset --dataset_name=mnist '
    '--dataset_dir=D',
    {'dataset_name': 'mnist', **_SMALL},
    evaluation=_TEST,
    scored=' on the test images',
  ),
  'cifar10': Preset(
    'CIFAR-10',
    f'--num_gpus=2 --batch_size=128 \\\n      {_TERNARY}',
    'Training sees random crops of --image_size pixels, evaluation the centre. '
    'Fill D\nwith: terngrad convert dataset --dataset_name=cifar10 '
    '--dataset_dir=D',
    {
      'dataset_name': 'cifar10',
      'image_size': 24,
      'max_steps': 300000,
      'net': 'cifar10_alexnet',
      'weight_decay': 0.004,
    },
    training={'batch_size': 128, **_ADAM},
    servers={'batch_size': 64, **_ADAM},
    evaluation={'batch_size': 50, **_TEST},
    scored=' on the test images',
  ),
  'imagenet': Preset(
    'ImageNet',
    '--net=alexnet --num_gpus=2 \\\n      --batch_size=256 --grad_bits=1 '
    '--clip_factor=2.5 --size_to_binarize=9217',
    'Labels are 1 to 1000 and 0 is the background, so there are 1001 logits. '
    'Fill D\nwith: terngrad convert download_imagenet D',
    {'dataset_name': 'imagenet'},
  ),
  'flowers': Preset(
    'the flower photos',
    '--fine_tune=True \\\n      --pretrained_model_checkpoint_path=C '
    '--initial_learning_rate=0.001',
    'Labels are 1 to 5 and 0 is the background, so there are 6 logits. Fill D '
    'with:\n  terngrad convert flowers D',
    {'dataset_name': 'flowers', 'image_size': 299, 'net': 'inception_v3'},
    evaluation={'num_examples': 500},
  ),
  'fashion_mnist': Preset(
    'Fashion-MNIST',
    f'--num_gpus=2 \\\n      {_TERNARY}',
    'Fill D with:\n  terngrad convert dataset --dataset_name=fashion_mnist '
    '--dataset_dir=D',
    {'dataset_name': 'fashion_mnist', **_SMALL},
    evaluation=_TEST,
    scored=' on the test images',
  ),
  'text': Preset(
    'text',
    '--num_nodes=4 --codec=ternary',
    'Evaluation scores bits a byte and perplexity. Fill D with:\n  terngrad '
    'convert text --source=FILES --output_directory=D',
    {
      'dataset_name': 'text',
      'dropout_keep_prob': 1.0,
      'net': 'gpt_nano',
      'weight_decay': 0.0,
    },
    training={
      'batch_size': 16,
      'initial_learning_rate': 0.002,
      'learning_rate_decay_type': 'fixed',
      'max_steps': 2000,
      'optimizer': 'adam',
      'quantize_logits': True,
    },
    evaluation={'batch_size': 16},
  ),
  'images': Preset(
    'a folder of your own images',
    '--net=alexnet --num_gpus=2 \\\n      --batch_size=64 --grad_bits=1 '
    '--clip_factor=2.5',
    'The data set in D defines the classes; label 0 is the background. Fill D '
    'with:\n  terngrad convert images --train_directory=... '
    '--validation_directory=... \\\n      --output_directory=D',
    {'dataset_name': 'images'},
  ),
}
