"""Lists the data sets, with the facts that their folders do not contain.

To add a data set, add an entry to `DATASETS`.
"""

from typing import NamedTuple

from slim import errors


class Dataset(NamedTuple):
  """A data set that can be read.

  Attributes:
    name: the key in `DATASETS`.
    splits: splits that can be loaded, the training split first; empty if a
      folder may have any splits.
    channels: number of channels of the images.
    image_size: height and width of all images in pixels; None for photographs
      of any size.
    num_classes: number of classes for folders that do not state it; labels
      are below it. None if only the folder can state it.
    has_background: label 0 is reserved for the background, as in 2017.
    storage: 'records', TFRecord files <split>-*; 'folder', image files
      <split>/<class>/*; 'database', a Caffe2 database <split>.
    preprocessing: a key of `slim.preprocessing.factory.PREPROCESSINGS`, for
      every net; '' if the net selects it.
    converter: converter of the authors' files, for
      download_and_convert_data: a module with `FACTS` and `SOURCES` (a
      `convert_arrays.SourceModule`), or `module:function`, a function of a
      `converters.ConversionRequest`. It is imported on first use, so that
      listing names does not import TensorFlow. '' if there is none.
  """

  name: str
  splits: tuple[str, ...]
  channels: int = 3
  image_size: int | None = None
  num_classes: int | None = None
  has_background: bool = False
  storage: str = 'records'
  preprocessing: str = ''
  converter: str = ''

  @property
  def first_label(self) -> int:
    """Returns the label of the first class that is not the background."""
    return int(self.has_background)


_SMALL = 'slim.datasets.small_images.'
_TEST = ('train', 'test')
_VALIDATION = ('train', 'validation')

DATASETS: dict[str, Dataset] = {
  dataset.name: dataset
  for dataset in (
    Dataset(
      'mnist',
      _TEST,
      1,
      28,
      10,
      preprocessing='mnist',
      converter=f'{_SMALL}mnist_source',
    ),
    Dataset(
      'fashion_mnist',
      _TEST,
      1,
      28,
      10,
      preprocessing='mnist',
      converter=f'{_SMALL}fashion_mnist_source',
    ),
    Dataset(
      'cifar10',
      _TEST,
      3,
      32,
      10,
      preprocessing='cifar10',
      converter=f'{_SMALL}cifar10_source',
    ),
    Dataset(
      'flowers',
      _VALIDATION,
      num_classes=6,
      has_background=True,
      converter='slim.datasets.converters:flowers',
    ),
    Dataset('imagenet', _VALIDATION, num_classes=1001, has_background=True),
    # Output of build_image_data for a user's images.
    Dataset('images', (), has_background=True),
    Dataset('image_folder', (), storage='folder'),
    Dataset('image_db', (), storage='database', preprocessing='caffe2'),
  )
}

# Prefix of names of tensorflow-datasets data sets.
TFDS = 'tfds:'


def find(name: str) -> Dataset:
  """Returns the catalog entry of a data set.

  Args:
    name: a key of `DATASETS`, or 'tfds:' and the name of a
      tensorflow-datasets data set.

  Raises:
    slim.errors.UnknownNameError: the name is unknown.
  """
  if name.startswith(TFDS):
    return DATASETS['images']._replace(name=name)
  return errors.lookup(DATASETS, name, 'data set')


CONVERTERS: dict[str, str] = {
  name: dataset.converter
  for name, dataset in sorted(DATASETS.items())
  if dataset.converter
}
