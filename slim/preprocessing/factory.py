"""Preprocessings by name.

To add one, write a module with a `contract.Batched` or a `contract.Single` and
add an entry to `PREPROCESSINGS`. If a function with options makes it, add that
function to `WITH_OPTIONS`, for `NAME:option=value`.
"""

from slim import errors
from slim import spelling
from slim.preprocessing import cifar
from slim.preprocessing import contract
from slim.preprocessing import inception
from slim.preprocessing import mnist
from slim.preprocessing import scaled

Preprocessing = contract.Batched | contract.Single

_RGB = 3  # channels

PREPROCESSINGS: dict[str, Preprocessing] = {
  'alexnet': scaled.ALEXNET,
  'caffe2': scaled.CAFFE2,
  'cifar10': cifar.CIFAR10,
  'cifarnet': cifar.CIFARNET,
  'inception': inception.INCEPTION,
  'inception_fast': inception.INCEPTION_FAST,
  'lenet': mnist.LENET,
  'mnist': mnist.MNIST,
  'vgg': scaled.VGG,
}


# Functions that make a preprocessing from options.
WITH_OPTIONS = {'caffe2': scaled.image_input}


def get(text: str) -> Preprocessing:
  """Returns a preprocessing.

  Args:
    text: a key of `PREPROCESSINGS`, or a key of `WITH_OPTIONS` with options,
      such as 'caffe2:mean=120,scale=300,mirror=false'.

  Raises:
    slim.errors.UnknownNameError: the name is unknown.
    slim.errors.DataError: an option is unknown, or a value is invalid.
  """
  name, items = spelling.split(text)
  chosen = errors.lookup(PREPROCESSINGS, name, 'preprocessing')
  if not items:
    return chosen
  makers = {name: WITH_OPTIONS.get(name, lambda: chosen)}
  try:
    return spelling.make('preprocessing', text, makers)
  except ValueError as error:
    raise errors.DataError(str(error)) from error


def choose(name: str, preferred: str, net: str, channels: int) -> Preprocessing:
  """Returns the named preprocessing, or the default of data set and net.

  Args:
    name: a preprocessing, as `get` takes it; '' chooses `default_name`.
    preferred: the data set's preprocessing, as `default_name` takes it.
    net: name of a net.
    channels: number of channels of the images.

  Raises:
    slim.errors.UnknownNameError: the name is unknown.
    slim.errors.DataError: an option is invalid, or the preprocessing is for
      images with another number of channels.
  """
  name = name or default_name(preferred, net)
  chosen = get(name)
  if isinstance(chosen, contract.Single) and channels != _RGB:
    raise errors.DataError(
      f'preprocessing: expected one for images with {channels} channel(s), as '
      f'mnist or lenet; received {name}, which needs {_RGB}. Choose another.'
    )
  return chosen


def default_name(preferred: str, net: str) -> str:
  """Chooses by data set and net, as the trainer of 2017 did.

  Args:
    preferred: the data set's preprocessing for every net, or '', as in
      `slim.datasets.catalog.Dataset`.
    net: name of a net.

  Returns:
    A key of `PREPROCESSINGS`.
  """
  if preferred:
    return preferred
  if net == 'alexnet':
    return 'alexnet'
  return 'vgg' if net.startswith(('vgg', 'slim_vgg')) else 'inception'
