"""Makes a page of a run: curves, and what the net says of test images."""

import dataclasses
import os
import sys

import tensorflow as tf

from slim import errors as data_errors
from slim.datasets import factory as datasets
from slim.datasets.records import records as data_records
from terngrad.checkpoint import trained
from terngrad.cluster import devices
from terngrad.config import config as configs
from terngrad.program import flags
from terngrad.program import main
from terngrad.report import run_page
from terngrad.training import records

USAGE = """\
run_page: makes a page of a run, one HTML file that needs nothing else.

  run_page --train_dir=T --eval_dir=E --output=run.html \\
      --dataset_name=cifar10 --data_dir=D --subset=test

Loss, accuracy, zeros, bits and images/s come from the records in T and E. With
--data_dir there are images too, with what the net of T's newest checkpoint says
of them.
"""

option = configs.option


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
  """The flags."""

  train_dir: str = option('', 'Folder of the training run.', 'run')
  eval_dir: str = option('', 'Folder of its evaluation; may be empty.', 'run')
  output: str = option('run.html', 'File to write.', 'run')
  dataset_name: str = option('imagenet', 'Data set it was trained on.', 'data')
  data_dir: str = option(
    '', 'Folder of the data set; empty: no images.', 'data'
  )
  subset: str = option('validation', 'Split to take images from.', 'data')
  num_images: int = option(32, 'Images to show.', 'data')
  labels_offset: int = option(0, 'As in training.', 'data')
  image_size: int = option(
    0, "Height and width of the input; 0: the net's own.", 'data'
  )
  preprocessing: str = option('', 'As in training.', 'data')
  tower: int = option(-1, "Read this node's parameters.", 'devices')
  device: str = option('/gpu:0', 'Device to run on.', 'devices')
  restore_avg_var: bool = option(
    True, 'Read the moving averages of the parameters.', 'model'
  )


def act(values):
  """Writes the page; returns the exit code."""
  losses = records.read(values.train_dir)
  if not losses:
    raise flags.UsageError(
      f'--train_dir: expected a folder with {records.FILE_NAME}, received '
      f'{values.train_dir!r}. Give that of a run that has begun.'
    )
  if values.num_images < 1:
    raise flags.UsageError(
      f'--num_images: expected 1 or more, received {values.num_images}. Leave '
      '--data_dir out for a page without images.'
    )
  scores = records.read(values.eval_dir) if values.eval_dir else []
  facts = {'folder': os.path.abspath(values.train_dir)}
  examples = []
  if values.data_dir:
    devices.grow_memory()
    net, examples = _examples(values)
    facts |= {
      'net': f'{net.layout.net}, {net.image_size} pixels',
      'nodes': f'{net.layout.num_workers} on {net.layout.num_devices} devices',
      'optimizer': net.layout.optimizer,
      'images': f'{values.subset} of {values.dataset_name}, step {net.step}',
    }
  facts |= run_page.last_values(losses, scores)
  title = os.path.basename(os.path.abspath(values.train_dir))
  text = run_page.page(title, facts, losses, scores, examples)
  try:
    with open(values.output, 'w', encoding='utf-8') as file:
      file.write(text)
  except OSError as error:
    raise flags.UsageError(
      f'--output: expected a file that can be written, received '
      f'{values.output} ({error.strerror}). Choose another.'
    ) from error
  main.say(f'Wrote {values.output}.')
  return main.DONE


def _examples(values):
  """(Trained, list of `run_page.Shown`)."""
  dataset = data_errors.lookup(
    datasets.DATASETS, values.dataset_name, 'data set'
  )
  net = trained.load(
    trained.Options(
      checkpoint_dir=values.train_dir,
      image_size=values.image_size,
      tower=values.tower,
      device=values.device,
      restore_avg_var=values.restore_avg_var,
    ),
    dataset.channels,
  )
  stream, split = datasets.load(
    values.dataset_name,
    values.data_dir,
    values.subset,
    datasets.Delivery(
      image_size=net.image_size,
      batch_size=values.num_images,
      training=False,
      net=net.layout.net,
      preprocessing=values.preprocessing,
      labels_offset=values.labels_offset,
    ),
  )
  try:
    images, labels = next(iter(stream))
  except tf.errors.OpError as error:
    paths = data_records.find(values.data_dir, values.subset)
    raise data_records.explain(error, paths) from error
  believed = trained.probabilities(net.model, images)
  return net, run_page.shown(
    images.numpy(), labels.numpy(), believed.numpy(), split.labels
  )


def run():
  """Runs the program; returns the exit code."""
  return main.run(Flags, USAGE, {}, act)


if __name__ == '__main__':
  sys.exit(run())
