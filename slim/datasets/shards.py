"""Finds the shards of a split and the number of their classes."""

import os
import pathlib
import re
from typing import NamedTuple

from absl import logging

from slim import errors
from slim.datasets import catalog
from slim.datasets import labels
from slim.datasets.records import counts
from slim.datasets.records import manifest
from slim.datasets.records import records
from slim.datasets.records import shard_manifest
from slim.datasets.records import sharding
from slim.datasets.records import text_facts

# MNIST as its authors publish it, also Fashion-MNIST.
_RAW = re.compile(r'.*-ubyte(\.gz)?')
# Folders that scripts/split_dataset.sh creates.
_WORKER_FOLDER = re.compile(r'worker_(0|[1-9][0-9]{0,8})_of_([1-9][0-9]{0,8})')


class Shards(NamedTuple):
  """The files of a split and their description.

  Attributes:
    files: the files in the folder, sorted by name; `order.partition_files`
      partitions them among workers.
    num_examples: number in the whole set. A worker's folder holds fewer.
    num_classes: number of logits; labels are below it.
    labels: name by label, or None if the folder has no names.
    digest: digest of the split in shards.json, or None if there is none.
    text: facts about text; None for images.
  """

  files: tuple[records.RecordFile, ...]
  num_examples: int
  num_classes: int
  labels: dict[int, str] | None
  digest: str | None = None
  text: text_facts.TextFacts | None = None


# Commands that fill a folder, without the folder's name, for data sets other
# than small images.
_PROGRAMS = {
  'flowers': 'flowers ',
  'imagenet': 'download_imagenet ',
  'images': 'images --train_directory=T --output_directory=',
  'text': 'text --source=FILES --output_directory=',
}


def find(
  dataset: catalog.Dataset,
  data_dir: str | os.PathLike[str],
  split: str,
  num_classes: int | None = None,
) -> Shards:
  """Finds the files `<data_dir>/<split>-*` and counts their records.

  The lengths of all records are scanned once, because TensorFlow crashes on a
  length beyond the end of a file. Classes come from `shards.json`. Without it,
  as in folders of 2017, their number is the argument, else that of labels.txt,
  else that of the catalog.

  Args:
    dataset: the data set of the folder.
    data_dir: the folder a converter wrote, or a worker's part of it.
    split: the prefix of the files.
    num_classes: number of classes that the caller requests, or None.

  Returns:
    At least one file.

  Raises:
    slim.errors.DataError: a conversion into the folder is unfinished; files
      are missing, damaged, not converted, or not those of shards.json; files
      without it are not all that their names count, or of two sets; or the
      number of classes is unknown or contradicts shards.json.
  """
  shard_manifest.check_finished(data_dir)
  paths = records.find(data_dir, split)
  _check_converted(dataset, data_dir, paths)
  if not paths:
    program = _PROGRAMS.get(
      dataset.name, f'dataset --dataset_name={dataset.name} --dataset_dir='
    )
    raise errors.DataError(
      f'{os.fspath(data_dir)}: expected files {split}-*; received none. Fill '
      f'the folder with: terngrad convert {program}{os.fspath(data_dir)}'
    )
  listed = manifest.read(data_dir)
  if listed:
    return _find_listed(listed, dataset, data_dir, split, paths, num_classes)
  _check_numbers(data_dir, split, paths)
  files = counts.count(paths)
  names = labels.read(data_dir, first_label=dataset.first_label)
  return Shards(
    files=files,
    num_examples=_total_count(data_dir, split, files),
    num_classes=_num_classes(dataset, data_dir, names, num_classes),
    labels=names,
  )


def _check_converted(
  dataset: catalog.Dataset,
  data_dir: str | os.PathLike[str],
  paths: list[str],
) -> None:
  """Refuses a folder that has the published files of MNIST and no others."""
  folder = os.fspath(data_dir)
  found = paths or (os.listdir(folder) if os.path.isdir(folder) else [])
  raw = sorted(n for n in map(os.path.basename, found) if _RAW.fullmatch(n))
  if not raw or len(raw) < len(paths):
    return
  name = dataset.name if 'mnist' in dataset.name else 'mnist'
  raise errors.DataError(
    f'{folder}: expected files of a converted data set; received {raw[0]}, as '
    'it was downloaded. Convert it to another folder D, and read that: '
    f'terngrad convert dataset --dataset_name={name} --source_dir={folder} '
    '--dataset_dir=D'
  )


def _find_listed(
  listed: manifest.Manifest,
  dataset: catalog.Dataset,
  data_dir: str | os.PathLike[str],
  split: str,
  paths: list[str],
  num_classes: int | None,
) -> Shards:
  """Returns the shards as shards.json lists them; checks sizes and counts."""
  folder = os.fspath(data_dir)
  if _is_from_build_image_data(listed, dataset):
    logging.warning(
      '%s: written by build_image_data, and read as %s because it has as many '
      'classes (%d with the background): %s',
      folder,
      dataset.name,
      listed.label_range,
      ', '.join((listed.labels or {}).values()) or 'without names',
    )
  elif listed.dataset != dataset.name and dataset.name != 'images':
    raise errors.DataError(
      f'{folder}: expected the data set {dataset.name}; received '
      f'{listed.dataset}, as its shards.json says. Choose another --data_dir '
      'or --dataset_name.'
    )
  if split not in listed.splits:
    raise errors.DataError(
      f'{folder}: expected the split {split}; received a shards.json with '
      f'{", ".join(sorted(listed.splits)) or "none"}. Choose one of these, or '
      'convert the data set again.'
    )
  shards = {shard.file: shard for shard in listed.splits[split].shards}
  # `test-*` also finds the files of a split test-small.
  others = set(listed.names) - shards.keys()
  names = {os.path.basename(path): path for path in paths}
  found = {name: path for name, path in names.items() if name not in others}
  _check_complete(data_dir, set(shards), set(found))
  classes = listed.label_range
  if num_classes not in (None, classes):
    raise errors.DataError(
      f'num_classes: expected {classes}, as {folder}/shards.json says; '
      f'received {num_classes}. Leave it out.'
    )
  return Shards(
    files=_checked(found, shards),
    num_examples=listed.splits[split].num_examples,
    num_classes=classes,
    labels=listed.labels,
    digest=listed.splits[split].digest,
    text=listed.text,
  )


def _check_numbers(
  data_dir: str | os.PathLike[str], split: str, paths: list[str]
) -> None:
  """Refuses files <split>-NNNNN-of-MMMMM that are not a whole set.

  A worker's folder holds a part of the set.
  """
  names = {os.path.basename(path) for path in paths}
  numbered = re.compile(f'{re.escape(split)}-[0-9]{{5}}-of-([0-9]{{5}})')
  totals = sorted({m[1] for m in map(numbered.fullmatch, names) if m})
  if not totals or is_workers(data_dir):
    return
  if len(totals) > 1:
    raise errors.DataError(
      f'{os.fspath(data_dir)}: expected shards {split}-* of one conversion; '
      f'received {split}-*-of-{totals[0]} and {split}-*-of-{totals[1]}. Move '
      'those of the other conversion to another folder.'
    )
  wanted = {*sharding.file_names(split, int(totals[0]))}
  _check_complete(data_dir, wanted, names, f'{split}-*-of-{totals[0]}')


def _check_complete(
  data_dir: str | os.PathLike[str],
  listed: set[str],
  found: set[str],
  source: str = manifest.FILE_NAME,
) -> None:
  """Refuses a folder that lacks a listed file; `source` listed them.

  Files of a stopped converter must not pass for a small data set, nor a part of
  a worker's files for all of them.
  """
  folder, worker = os.fspath(data_dir), _worker(data_dir)
  wanted = sorted(listed)
  remedy = 'Copy the missing files, or convert the data set again.'
  if worker:
    index, count = worker
    share, rest = divmod(len(wanted), count)
    begin = index * share + min(index, rest)
    wanted = wanted[begin : begin + share + (index < rest)]
    source = f'worker {index} of {count}'
    remedy = 'Remove this folder and run scripts/split_dataset.sh again.'
  absent = [name for name in wanted if name not in found]
  if absent:
    raise errors.DataError(
      f'{folder}: expected the {len(wanted)} shards of {source}; received '
      f'{len(wanted) - len(absent)}, without {absent[0]}. {remedy}'
    )


def _is_from_build_image_data(
  listed: manifest.Manifest, dataset: catalog.Dataset
) -> bool:
  """Returns whether build_image_data wrote a known set of photographs.

  The scripts of 2017 converted the flowers with build_image_data.
  """
  return (
    listed.dataset == 'images' != dataset.name
    and dataset.has_background
    and dataset.image_size is None
    and listed.label_range == dataset.num_classes
  )


def _checked(
  found: dict[str, str], listed: dict[str, manifest.Shard]
) -> tuple[records.RecordFile, ...]:
  """Counts the records of files, path by name, after checking their sizes."""
  for name, path in found.items():
    _check_size(path, listed.get(name))
  files = counts.count(list(found.values()))
  for name, file in zip(found, files, strict=True):
    expected = listed[name].num_examples
    if file.count != expected:
      raise errors.DataError(
        f'{file.path}: expected the {expected} records that shards.json lists; '
        f'received {file.count}. Convert the data set again.'
      )
  return files


def _check_size(path: str, shard: manifest.Shard | None) -> None:
  if shard is None:
    raise errors.DataError(
      f'{path}: expected a file that shards.json lists; received another. Move '
      'it to another folder, or convert the data set again.'
    )
  try:
    size = os.stat(path).st_size
  except OSError as error:
    raise errors.DataError(
      f'{path}: expected a readable TFRecord file; received "{error}". Check '
      'the path and its permissions.'
    ) from error
  if size != shard.size:
    records.scan(path)  # reports the record at which a file was cut
    raise errors.DataError(
      f'{path}: expected the {shard.size} bytes that shards.json lists; '
      f'received {size}: the file was cut short, or replaced. Convert the data '
      'set again.'
    )


def _num_classes(
  dataset: catalog.Dataset,
  data_dir: str | os.PathLike[str],
  names: dict[int, str] | None,
  requested: int | None,
) -> int:
  if requested is not None:
    return requested
  if names:
    return max(names) + 1
  if dataset.num_classes:
    return dataset.num_classes
  raise errors.DataError(
    f'{os.fspath(data_dir)}: expected {manifest.FILE_NAME} or '
    f'{labels.FILE_NAME} with the classes; received neither. Write a '
    f'{labels.FILE_NAME}, one name per line, or pass num_classes.'
  )


def _total_count(
  data_dir: str | os.PathLike[str],
  split: str,
  files: tuple[records.RecordFile, ...],
) -> int:
  """Returns the size of the whole set, also for a worker's folder."""
  count = sum(file.count for file in files)
  if not is_workers(data_dir):
    return count
  folders = {pathlib.Path(file.path).resolve().parent for file in files}
  if len(folders) != 1:
    return count
  return sum(f.count for f in counts.count(records.find(folders.pop(), split)))


def is_workers(data_dir: str | os.PathLike[str]) -> bool:
  """Returns True for a worker's folder, created by `split_dataset.sh`."""
  return _worker(data_dir) is not None


def _worker(data_dir: str | os.PathLike[str]) -> tuple[int, int] | None:
  """Returns (index, workers) of a worker's folder, else None."""
  name = pathlib.Path(os.path.abspath(data_dir)).name
  match = _WORKER_FOLDER.fullmatch(name)
  return (int(match[1]), int(match[2])) if match else None
