import sys
import types

import numpy as np

from slim.datasets.small_images import tfds_arrays


def test_what_tfds_delivers_is_saved_in_the_source_s_shapes(
  tmp_path, monkeypatch
):
  """tensorflow-datasets is replaced: it needs a network."""

  class Builder:
    def download_and_prepare(self):
      self.ready = True

    def as_dataset(self, split, batch_size):
      assert self.ready and batch_size == -1  # all at once
      count = {'train': 6, 'test': 2}[split]
      return {
        'image': np.full([count, 28, 28, 1], count, np.uint8),
        'label': np.arange(count, dtype=np.int64),
      }

  fake = types.SimpleNamespace(
    builder=lambda name, data_dir, try_gcs: Builder(),
    as_numpy=lambda columns: columns,
  )
  monkeypatch.setitem(sys.modules, 'tensorflow_datasets', fake)
  tfds_arrays.fetch('mnist', tmp_path)
  for split, count in (('train', 6), ('test', 2)):
    images = np.load(tmp_path / f'{split}-images.npy')
    labels = np.load(tmp_path / f'{split}-labels.npy')
    assert (images.dtype, images.shape) == (np.uint8, (count, 28, 28, 1))
    assert labels.dtype == np.uint8
    np.testing.assert_array_equal(labels, range(count))
