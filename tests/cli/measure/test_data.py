import re

import pytest

from terngrad.cli import flags
from terngrad.cli.measure import data
from tests.slim import image_files
from tests.slim import mnist_files


def test_every_ratio_is_printed(tmp_path, capsys):
  image_files.write_folders(tmp_path / 'photos', {'a': 3, 'b': 3})
  mnist_files.write_idx(tmp_path / 'idx')
  data.act(
    data.MeasureDataFlags(
      image_dir=str(tmp_path / 'photos'),
      mnist_dir=str(tmp_path / 'idx'),
      num_threads=2,
      rounds=2,
    )
  )
  lines = capsys.readouterr().out.splitlines()
  assert [line.partition(':')[0] for line in lines] == [
    'images',
    'mnist',
    'mnist, ready records',
  ]
  for line in lines:
    assert re.search(r': \d+\.\d\d \(medians .* 2 rounds, 2 threads\)$', line)


def test_nothing_to_measure_is_refused():
  with pytest.raises(flags.UsageError, match='Expected --image_dir or --mnist'):
    data.act(data.MeasureDataFlags())
