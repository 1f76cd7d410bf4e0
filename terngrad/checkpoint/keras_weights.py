"""Reads weights that Keras saved, without Keras, so no code in a file can run.

Layers are matched by name. `.weights.h5`, and the file of that format inside a
`.keras` archive, number the variables of a layer in the layer's order. The
older `.h5` format names them. Values are read one at a time, and only after
their shapes match, so no file can demand more memory than the net needs.
"""

import collections
import contextlib
import zipfile
import zlib
from collections.abc import Iterator
from collections.abc import Sequence
from typing import IO

import h5py
import numpy as np

from terngrad import errors
from terngrad.checkpoint import sources

_WEIGHTS_MEMBER = 'model.weights.h5'
# What h5py and zipfile raise for damaged files. An encrypted archive and an
# unknown compression are a RuntimeError.
_FAILURES = (
  EOFError,
  KeyError,
  OSError,
  RuntimeError,
  TypeError,
  ValueError,
  zipfile.BadZipFile,
  zlib.error,
)


def open_file(path: str, order: Sequence[str]) -> sources.WeightSource:
  """Opens a `.weights.h5`, `.h5` or `.keras` file as a weight source.

  Args:
    path: path of the file.
    order: our names of the net's variables, in the layers' order, as in
      `model_variables.ModelVariables`.

  Raises:
    errors.CheckpointError: the file cannot be read, or it refers to values
      outside of it.
  """
  numbered = _number_names(order)
  shapes, paths, unexpected = {}, {}, []
  with _open(path) as file:
    for key, dataset in _datasets(file):
      _refuse_references(path, dataset)
      name = numbered.get(key, key)
      if name in order:
        shapes[name], paths[name] = list(dataset.shape), dataset.name
      else:
        unexpected.append(key)

  def read(name: str) -> np.ndarray:
    with _open(path) as file:
      return np.asarray(file[paths[name]], np.float32)

  return sources.WeightSource(path, shapes, sorted(unexpected), 0, read)


@contextlib.contextmanager
def _open(path: str) -> Iterator[h5py.File]:
  """Opens an h5 file, or the h5 file in an archive without unpacking it.

  Raises:
    errors.CheckpointError: it cannot be opened, or not be read in the block.
  """
  try:
    with contextlib.ExitStack() as stack:
      file: str | IO[bytes] = path
      if zipfile.is_zipfile(path):
        archive = stack.enter_context(zipfile.ZipFile(path))
        file = stack.enter_context(archive.open(_WEIGHTS_MEMBER))
      yield stack.enter_context(h5py.File(file, 'r'))
  except errors.CheckpointError:
    raise
  except _FAILURES as error:
    raise errors.CheckpointError(
      f'{path}: expected weights saved by Keras (.weights.h5, .h5 or .keras), '
      f'received: {error}. Check the path; save them again if they are damaged.'
    ) from error


def _number_names(order: Sequence[str]) -> dict[str, str]:
  """Returns {'conv1/0': 'conv1/kernel', ...}."""
  counts: collections.Counter[str] = collections.Counter()
  found = {}
  for name in order:
    layer = name.rpartition('/')[0]
    found[f'{layer}/{counts[layer]}'] = name
    counts[layer] += 1
  return found


def _datasets(file: h5py.File) -> list[tuple[str, h5py.Dataset]]:
  """Returns pairs ('conv1/0' or 'conv1/kernel', dataset) for all HDF5 datasets.

  h5py's `visititems` follows neither soft nor external links.
  """
  found: list[tuple[str, h5py.Dataset]] = []

  def visit(path: str, item: h5py.HLObject) -> None:
    if not isinstance(item, h5py.Dataset):
      return
    parts = path.removeprefix('model_weights/').split('/')
    if len(parts) > 1 and parts[-2] == 'vars':
      layer = item.parent.attrs.get('name', '/'.join(parts[:-2]))
      found.append((f'{layer}/{parts[-1]}', item))
    else:
      found.append((f'{parts[0]}/{parts[-1].removesuffix(":0")}', item))

  file.visititems(visit)
  return found


def _refuse_references(path: str, dataset: h5py.Dataset) -> None:
  """Raises if a dataset is not numeric or not stored in the file itself."""
  if dataset.external or dataset.is_virtual or dataset.dtype.kind not in 'fiu':
    raise errors.CheckpointError(
      f'{path}: expected numbers in the file itself, received {dataset.name}, '
      'which has another type or refers to other files. Do not use this '
      'file; save the weights again with Keras.'
    )
