"""Runs that continue after files were damaged or the power was cut."""

import shutil

import pytest

from slim.datasets.small_images import convert_mnist
from slim.datasets.small_images import mnist_source
from terngrad import errors
from terngrad.checkpoint import checkpoints
from terngrad.config import options as options_lib
from terngrad.config import training as configs
from terngrad.training import records
from terngrad.training import start
from tests import power_cut
from tests.slim import mnist_files

LAST = 21


def train(folder, report=lambda line: None, max_steps=LAST, **changes):
  config = options_lib.build(
    configs.TrainConfig,
    net='lenet',
    dataset_name='mnist',
    batch_size=4,
    max_steps=max_steps,
    save_iter=10,
    train_dir=str(folder),
    **({'benchmark_mode': True, 'image_size': 8} | changes),
  )
  return start.train(config, report)


def continued(folder):
  """What of the records a run says that takes one step more."""
  lines = []
  train(folder, lines.append, LAST + 1)
  assert sum(': gradients: 32.00 bits' in line for line in lines) == 1
  assert any(f'continuing after step {LAST}' in line for line in lines)
  assert checkpoints.newest(str(folder)).endswith(f'-{LAST + 1}')
  return [line for line in lines if records.FILE_NAME in line]


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
  """(folder of a run, what the disk held when it said that it was saved)."""
  with pytest.MonkeyPatch.context() as monkeypatch:
    folder = tmp_path_factory.mktemp('disk')
    disk = power_cut.Disk(monkeypatch)
    lefts = []

    def report(line):
      if 'saved' in line:
        lefts.append(disk.after_power_cut(folder, folder.with_name('left')))

    train(folder / 'new' / 'run', report)
  (left,) = lefts
  return folder / 'new' / 'run', left / 'new' / 'run'


@pytest.fixture
def trained(whole, tmp_path):
  """The records of a copy of the run."""
  return shutil.copytree(whole[0], tmp_path / 'run') / records.FILE_NAME


@pytest.mark.usefixtures('eager_functions')
def test_a_resumed_run_reports_a_damaged_line(trained):
  content = trained.read_bytes()
  trained.write_bytes(b'\xff' + content[1:])
  (line,) = continued(trained.parent)
  assert line.endswith(
    'skipped 1 damaged or incomplete lines, the first is line 1'
  )


@pytest.mark.usefixtures('eager_functions')
def test_a_resumed_run_reports_missing_records(trained):
  lines = trained.read_bytes().splitlines(keepends=True)
  trained.write_bytes(b''.join(lines[:1]))
  (line,) = continued(trained.parent)
  assert line.endswith(
    f'ends at step 10; the lines from there to step {LAST} are lost'
  )


@pytest.mark.usefixtures('eager_functions')
def test_a_resumed_run_removes_unfinished_files(trained):
  folder = trained.parent
  (folder / 'model.ckpt-25_temp').mkdir()
  (folder / 'model.ckpt-25_temp' / 'part-00000-of-00001.data').touch()
  (folder / 'checkpoint.tmp12ab').touch()
  before = {path.name for path in folder.iterdir()}
  continued(folder)
  gone = before - {path.name for path in folder.iterdir()}
  assert gone == {'model.ckpt-25_temp', 'checkpoint.tmp12ab'}


@pytest.mark.usefixtures('eager_functions')
def test_a_run_resumes_after_a_power_cut_where_it_saved(whole):
  _, left = whole
  assert records.read(left)[-1]['step'] == LAST
  assert continued(left) == []


@pytest.mark.usefixtures('eager_functions')
def test_a_resumed_run_reports_changed_data(tmp_path):
  """The name of the data and of their folder are the same."""
  data, run = tmp_path / 'data', tmp_path / 'run'
  options = {'benchmark_mode': False, 'data_dir': str(data)}
  reports = []
  for count, steps in ((23, 1), (21, 2)):
    idx = tmp_path / f'idx_{count}'
    mnist_files.write_idx(idx, count)
    convert_mnist.convert(
      str(data),
      source='idx',
      request=mnist_source.SourceOptions(str(idx), verify_checksums=False),
      overwrite=True,
    )
    lines = []
    train(run, lines.append, steps, **options)
    reports.append([line for line in lines if line.startswith('data was ')])
  before, (line,) = reports
  assert before == []
  assert line.endswith('the run will not end with the same bits')


def test_a_run_stops_if_its_folder_is_renamed(tmp_path):
  folder = tmp_path / 'run'

  def report(line):
    if ': step 20,' in line:
      folder.rename(tmp_path / 'other')

  with pytest.raises(errors.TrainingError) as caught:
    train(folder, report)
  assert 'renamed during the run' in str(caught.value)
  # Nothing is written to what has the name now.
  assert not folder.exists()
  assert checkpoints.newest(str(tmp_path / 'other')).endswith('-10')
