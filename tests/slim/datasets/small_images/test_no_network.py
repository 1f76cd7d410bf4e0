"""Without a network the message has the address and the files to download."""

import subprocess

import pytest

from slim import errors
from slim.datasets.small_images import arrays
from slim.datasets.small_images import cifar10_source
from slim.datasets.small_images import fashion_mnist_source
from slim.datasets.small_images import mnist_source
from slim.datasets.small_images import tfds_arrays


@pytest.mark.parametrize(
  'source', [cifar10_source, fashion_mnist_source, mnist_source]
)
def test_the_address_and_the_files_are_named(source, monkeypatch):
  def run(*arguments, **options):
    return subprocess.CompletedProcess(arguments, 1, stderr=b'no route')

  monkeypatch.setattr(subprocess, 'run', run)
  with pytest.raises(errors.DataError) as found:
    arrays.from_tfds(source.FACTS, None)
  text = str(found.value)
  address, files = tfds_arrays.FILES[source.FACTS.name]
  assert 'received "no route". Download ' in text
  assert address in text and all(name in text for name in files)
  assert text.endswith('--source_dir.')


def test_the_names_are_those_that_source_dir_needs():
  assert tfds_arrays.FILES['cifar10'][1] == (cifar10_source.BINARY,)
  assert sorted(tfds_arrays.FILES['mnist'][1])[-1] == (
    'train-labels-idx1-ubyte.gz'
  )
