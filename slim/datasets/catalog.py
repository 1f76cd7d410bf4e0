"""What each data set is: the facts that its folder does not say.

To add one: one entry in `DATASETS`.
"""

from typing import NamedTuple

from slim import errors


class Dataset(NamedTuple):
  """What can be read.

  Attributes:
    name: the key in `DATASETS`.
    splits: what can be loaded, the one to train on first; empty where a folder
      may have any.
    channels: of the images.
    image_size: height and width of all images in pixels; None where they are
      photographs of any size.
    num_classes: labels are below it, for folders that do not say their own
      number; None where only the folder can.
    has_background: label 0 is kept for the background, as in 2017.
    storage: 'records', TFRecord files <split>-*; 'folder', image files
      <split>/<class>/*; 'database', a Caffe2 database <split>.
    preprocessing: a key of `slim.preprocessing.factory.PREPROCESSINGS`, for
      every net; '' where the net chooses.
    converter: of its authors' files, for download_and_convert_data: a module
      with `FACTS` and `SOURCES`, see `convert_arrays.SourceModule`, or the
      `module:function` of a `converters.ConversionRequest`. It is imported when
      it is asked for: only names can be had without TensorFlow. '' for none.
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
    """Label of the first class that is not the background."""
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
    # What build_image_data makes of a user's own images.
    Dataset('images', (), has_background=True),
    Dataset('image_folder', (), storage='folder'),
    Dataset('image_db', (), storage='database', preprocessing='caffe2'),
  )
}

# What stands before the name of a set that tensorflow-datasets has.
TFDS = 'tfds:'


def find(name: str) -> Dataset:
  """Returns what is known of a data set.

  Args:
    name: a key of `DATASETS`, or one of tensorflow-datasets after 'tfds:'.

  Raises:
    slim.errors.UnknownNameError: there is none of that name.
  """
  if name.startswith(TFDS):
    return DATASETS['images']._replace(name=name)
  return errors.lookup(DATASETS, name, 'data set')


CONVERTERS: dict[str, str] = {
  name: dataset.converter
  for name, dataset in sorted(DATASETS.items())
  if dataset.converter
}
