"""Predictions of a run's net for test images."""

import dataclasses

from slim.datasets import catalog
from slim.datasets import factory as datasets
from slim.datasets.records import records as data_records
from slim.nets import factory as nets
from terngrad import errors
from terngrad.checkpoint import trained
from terngrad.cluster import devices
from terngrad.report import run_page


def predict(
  options: trained.LoadOptions,
  name: str,
  data_dir: str,
  subset: str,
  read_options: datasets.ReadOptions,
) -> tuple[trained.Trained, list[run_page.Prediction]]:
  """Predicts the classes of the first batch of a split.

  Args:
    options: which checkpoint to load.
    name: name of the data set, as in `slim.datasets.catalog.find`.
    data_dir: directory of the data set.
    subset: split of the data set.
    read_options: how to prepare the images, and how many. The net and the image
      size are those of the checkpoint, and so are the preprocessing and the
      offset of the labels unless they are given.

  Raises:
    errors.ConfigError: the net is not for images.
    slim.errors.DataError: there are no such images.
    terngrad.errors.CheckpointError: there is no such checkpoint.
  """
  devices.grow_memory()
  net = trained.load(options, catalog.find(name).channels)
  if nets.find_net(net.layout.net).takes_tokens:
    raise errors.ConfigError(
      'data_dir: expected the checkpoint of a net for images, received one of '
      f'the language model {net.layout.net}. Leave --data_dir out for a page '
      'without images.'
    )
  stream, split = datasets.load(
    name,
    data_dir,
    subset,
    dataclasses.replace(
      read_options,
      image_size=net.image_size,
      net=net.layout.net,
      preprocessing=read_options.preprocessing or net.preprocessing,
      labels_offset=read_options.labels_offset or net.labels_offset,
    ),
  )
  try:
    images, labels = next(iter(stream))
  except data_records.FAILURES as error:
    paths = data_records.find(data_dir, subset)
    raise data_records.explain(error, paths) from error
  probabilities = trained.probabilities(net.model, images)
  return net, run_page.predictions(
    images.numpy(), labels.numpy(), probabilities.numpy(), split.labels
  )
