"""Test images, and what the net of a run says of them."""

from typing import NamedTuple

from slim.datasets import catalog
from slim.datasets import factory as datasets
from slim.datasets.records import records as data_records
from terngrad.checkpoint import trained
from terngrad.cluster import devices
from terngrad.report import run_page


class ImageSource(NamedTuple):
  """Where images come from, and how they are prepared.

  Attributes:
    dataset_name: see `slim.datasets.catalog.find`.
    data_dir: its folder.
    subset: split.
    count: of images, >= 1.
    preprocessing: its name, or '' for that of data set and net.
    labels_offset: as in training.
  """

  dataset_name: str
  data_dir: str
  subset: str
  count: int
  preprocessing: str
  labels_offset: int


def guessed(options, source):
  """Shows the first images of a split to the net of a checkpoint.

  Args:
    options: `checkpoint.trained.Options`.
    source: `ImageSource`.

  Returns:
    (`checkpoint.trained.Trained`, list of `run_page.Shown`).

  Raises:
    slim.errors.DataError: there are no such images.
    terngrad.errors.CheckpointError: there is no such checkpoint.
  """
  name = source.dataset_name
  dataset = catalog.find(name)
  devices.grow_memory()
  net = trained.load(options, dataset.channels)
  stream, split = datasets.load(
    name,
    source.data_dir,
    source.subset,
    datasets.ReadOptions(
      image_size=net.image_size,
      batch_size=source.count,
      training=False,
      net=net.layout.net,
      preprocessing=source.preprocessing,
      labels_offset=source.labels_offset,
    ),
  )
  try:
    images, labels = next(iter(stream))
  except data_records.FAILURES as error:
    paths = data_records.find(source.data_dir, source.subset)
    raise data_records.explain(error, paths) from error
  believed = trained.probabilities(net.model, images)
  return net, run_page.shown(
    images.numpy(), labels.numpy(), believed.numpy(), split.labels
  )
