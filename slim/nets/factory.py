"""Nets by name.

A name without prefix is the net that the 2017 trainers built under this name.
If TF-Slim has a different net of the same name, TF-Slim's has the prefix
`slim_`. `slim_name` maps a name of TF-Slim to a name here.

A name may have options, the parameters of the net's `build` that not every net
has: 'resnet_v1_50:first_kernel=3,first_stride=1'.

To add a net, write a module with a `build` like `slim.nets.lenet.build` and add
an entry to `NETS`.
"""

import functools
import inspect
from collections import abc
from typing import Any
from typing import NamedTuple

import keras

from slim import errors
from slim import spelling
from slim.nets import alexnet
from slim.nets import alexnet_v2
from slim.nets import cifar10_alexnet
from slim.nets import cifarnet
from slim.nets import gpt
from slim.nets import inception_resnet_v2
from slim.nets import inception_v1
from slim.nets import inception_v2
from slim.nets import inception_v3
from slim.nets import inception_v4
from slim.nets import lenet
from slim.nets import overfeat
from slim.nets import resnet
from slim.nets import small_resnet
from slim.nets import vgg
from slim.nets.blocks import initializers


class Net(NamedTuple):
  """A net, with the hyperparameters that its authors used.

  Attributes:
    build: takes num_classes, image_size, channels, weight_decay,
      dropout_keep_prob and seed by name; returns a keras.Model that returns
      logits. If `auxiliary_weight` > 0, the model returns the list [logits,
      auxiliary logits], in training and in inference; `select_logits`
      selects the logits.
    default_image_size: height and width in pixels the net was designed for.
    default_channels: number of channels of the images it was designed for.
    weight_decay: factor of sum(w**2) / 2.
    dropout_keep_prob: fraction of the units that dropout keeps, in (0, 1].
    auxiliary_weight: factor of the auxiliary logits' loss; 0 if the net has
      no auxiliary logits.
    label_smoothing: fraction of the label that is spread over all classes.
    preprocessing: a key of `slim.preprocessing.factory.PREPROCESSINGS`, which
      TF-Slim's trainer used for the net; '' if it had none.
    least_image_size: size of the smallest images that reach the net's last
      layers, in pixels.
    takes_tokens: True for language models: the input is int32 [B, T], T as
      the data has it, instead of images; logits are [B, T, num_classes].
  """

  build: abc.Callable[..., keras.Model]
  default_image_size: int
  default_channels: int = 3
  weight_decay: float = 0.0005
  dropout_keep_prob: float = 0.5
  auxiliary_weight: float = 0.0
  label_smoothing: float = 0.0
  preprocessing: str = ''
  least_image_size: int = 1
  takes_tokens: bool = False


def _inception(
  build: abc.Callable[..., keras.Model], image_size: int = 299, **others: Any
) -> Net:
  """Returns a net of TF-Slim's Inception family."""
  return Net(
    build,
    image_size,
    weight_decay=0.00004,
    dropout_keep_prob=0.8,
    preprocessing='inception',
    **others,
  )


def _slim_vgg(name: str) -> Net:
  return Net(
    functools.partial(vgg.build_slim, name),
    224,
    preprocessing='vgg',
    least_image_size=32,
  )


def _resnet(version: int, depth: int) -> Net:
  # TF-Slim has no preprocessing for the deepest net.
  return Net(
    functools.partial(resnet.build, version, depth),
    224,
    weight_decay=0.0001,
    preprocessing='' if depth == 200 else 'vgg',
  )


def _gpt(name: str, **sizes: int) -> Net:
  return Net(
    functools.partial(gpt.build, name, **sizes),
    gpt.SEQUENCE_LENGTH,
    default_channels=1,
    weight_decay=0.0,
    dropout_keep_prob=1.0,
    takes_tokens=True,
  )


NETS: dict[str, Net] = {
  # Nets of the 2017 trainers.
  'alexnet': Net(alexnet.build, 224, least_image_size=57),
  'alexnet_v2': Net(alexnet_v2.build, 224, least_image_size=67),
  'cifar10_alexnet': Net(cifar10_alexnet.build, 24, weight_decay=0.004),
  'googlenet': Net(
    inception_v1.build, 224, weight_decay=0.00004, dropout_keep_prob=0.8
  ),
  'inception_v3': Net(
    inception_v3.build,
    299,
    weight_decay=0.00004,
    dropout_keep_prob=0.8,
    auxiliary_weight=0.4,
    label_smoothing=0.1,
    least_image_size=107,
  ),
  'lenet': Net(lenet.build, 28, default_channels=1),
  'vgg_16': Net(
    functools.partial(vgg.build, 'vgg_16'), 224, least_image_size=32
  ),
  'vgg_a': Net(functools.partial(vgg.build, 'vgg_a'), 224, least_image_size=32),
  # Nets of TF-Slim.
  'cifarnet': Net(
    cifarnet.build,
    32,
    weight_decay=0.004,
    preprocessing='cifarnet',
    least_image_size=4,
  ),
  'inception_resnet_v2': _inception(
    inception_resnet_v2.build, auxiliary_weight=0.4, least_image_size=107
  ),
  'inception_v1': _inception(inception_v1.build, 224),
  'inception_v2': _inception(inception_v2.build, 224),
  'inception_v4': _inception(
    inception_v4.build, auxiliary_weight=0.4, least_image_size=107
  ),
  'overfeat': Net(overfeat.build, 231, least_image_size=71),
  **{
    f'resnet_v{version}_{depth}': _resnet(version, depth)
    for version in (1, 2)
    for depth in resnet.UNITS
  },
  # Nets for small images.
  'small_resnet_18': Net(
    functools.partial(small_resnet.build, small_resnet.RESNET_18),
    28,
    default_channels=1,
    weight_decay=0.0,
  ),
  **{
    f'cifar_resnet_{depth}': Net(
      functools.partial(
        small_resnet.build, small_resnet.cifar_architecture(depth)
      ),
      32,
      weight_decay=0.0001,
      preprocessing='cifarnet',
    )
    for depth in small_resnet.CIFAR_DEPTHS
  },
  # Language models.
  'gpt_nano': _gpt('gpt_nano', blocks=5, width=128, heads=4),
  'gpt_small': _gpt('gpt_small', blocks=8, width=512, heads=8),
  # Nets of TF-Slim, with the prefix `slim_` or another name.
  'slim_alexnet_v2': Net(alexnet_v2.build, 224, least_image_size=67),
  'slim_inception_v3': _inception(
    inception_v3.build_slim, auxiliary_weight=0.4, least_image_size=107
  ),
  'slim_lenet': Net(
    lenet.build_slim,
    28,
    default_channels=1,
    weight_decay=0.0,
    preprocessing='lenet',
    least_image_size=4,
  ),
  'slim_vgg_16': _slim_vgg('vgg_16'),
  'slim_vgg_a': _slim_vgg('vgg_a'),
  'vgg_19': _slim_vgg('vgg_19'),
}

_NOT_SLIM = (
  'alexnet',
  'alexnet_v2',
  'cifar10_alexnet',
  'googlenet',
  'inception_v3',
  'lenet',
  'vgg_16',
  'vgg_a',
  'small_resnet_18',
  *(f'cifar_resnet_{depth}' for depth in small_resnet.CIFAR_DEPTHS),
  'gpt_nano',
  'gpt_small',
)

# Keys of `NETS` by TF-Slim's names of nets, the values of `--model_name`.
SLIM_NAMES: dict[str, str] = {
  name.removeprefix('slim_'): name for name in NETS if name not in _NOT_SLIM
}


def slim_name(model_name: str) -> str:
  """Returns the key of `NETS` of a net of TF-Slim.

  Args:
    model_name: TF-Slim's name, a key of `SLIM_NAMES`.

  Raises:
    slim.errors.UnknownNameError: TF-Slim has no such net.
  """
  return errors.lookup(SLIM_NAMES, model_name, 'net of TF-Slim')


def find_net(text: str) -> Net:
  """Returns the net named in a text, with its options bound to `build`.

  Args:
    text: a key of `NETS`, with or without options.

  Raises:
    slim.errors.UnknownNameError: the name is unknown.
    slim.errors.DataError: an option is unknown, or a value is invalid.
  """
  name, items = spelling.split(text)
  net = errors.lookup(NETS, name, 'net')
  if not items:
    return net
  parameters = inspect.signature(net.build).parameters
  net_options = {
    k: v for k, v in parameters.items() if k not in _COMMON_PARAMETERS
  }
  try:
    options = spelling.read(f'net {name}', items, net_options)
  except ValueError as error:
    raise errors.DataError(str(error)) from error
  return net._replace(build=functools.partial(net.build, **options))


# Parameters of `Net.build` that every net has.
_COMMON_PARAMETERS = (
  'num_classes',
  'image_size',
  'channels',
  'weight_decay',
  'dropout_keep_prob',
  'seed',
)


def build(
  name: str,
  *,
  num_classes: int,
  image_size: int | None = None,
  channels: int | None = None,
  weight_decay: float | None = None,
  dropout_keep_prob: float | None = None,
  seed: int = 1,
  initializer: str = '',
) -> keras.Model:
  """Builds a net by name.

  Args:
    name: a key of `NETS`, with or without options.
    num_classes: number of logits, >= 1.
    image_size: height and width of the input in pixels; None uses the net's
      default.
    channels: channels of the input; None uses the net's default.
    weight_decay: factor of sum(w**2) / 2 over kernels in the model's losses;
      None uses the net's default.
    dropout_keep_prob: fraction of the units that dropout keeps, in (0, 1];
      None uses the net's default.
    seed: seed of all initial weights and of dropout.
    initializer: initializer of all kernels, as `initializers.parse` takes it;
      '' uses the net's initializers.

  Returns:
    A model from float32 [B, image_size, image_size, channels] to logits,
    float32 [B, num_classes], or to a list of two of them, as in `Net.build`.
    Nets with `Net.takes_tokens` have another input and output.

  Raises:
    slim.errors.UnknownNameError: the net is unknown.
    slim.errors.DataError: the images are too small for the net, an option is
      unknown, or a value is invalid.
    ValueError: the initializer is unknown or invalid.
  """
  net = find_net(name)
  image_size = net.default_image_size if image_size is None else image_size
  if image_size < net.least_image_size:
    raise errors.DataError(
      f'{name}: expected images of at least {net.least_image_size} pixels, '
      f'received {image_size}. Pass a larger image size; the net was designed '
      f'for {net.default_image_size}.'
    )
  model = net.build(
    num_classes=num_classes,
    image_size=image_size,
    channels=net.default_channels if channels is None else channels,
    weight_decay=net.weight_decay if weight_decay is None else weight_decay,
    dropout_keep_prob=(
      net.dropout_keep_prob if dropout_keep_prob is None else dropout_keep_prob
    ),
    seed=seed,
  )
  if initializer:
    initializers.draw_kernels(model, initializers.parse(initializer), seed)
  return model


def select_logits(outputs: Any) -> Any:
  """Returns the logits of a net's outputs, without auxiliary logits."""
  return outputs[0] if isinstance(outputs, list) else outputs
