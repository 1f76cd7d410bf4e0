"""run_page on a real run with a real evaluation."""

import re

import pytest

from tests.bin import programs


@pytest.mark.slow
def test_page_shows_curves_and_images_of_a_run(
  worker, one_tower, data_dir, tmp_path
):
  scored = worker.run(
    'mnist_eval',
    programs.as_flags(
      data_dir=data_dir,
      checkpoint_dir=one_tower,
      eval_dir=tmp_path / 'eval',
      run_once=True,
    ),
  )
  assert scored.code == 0, scored.err
  done = worker.run(
    'run_page',
    programs.as_flags(
      train_dir=one_tower,
      eval_dir=tmp_path / 'eval',
      data_dir=data_dir,
      dataset_name='mnist',
      subset='test',
      num_images=10,
      output=tmp_path / 'run.html',
    ),
  )
  assert (done.code, done.out) == (0, f'Wrote {tmp_path}/run.html.\n'), done.err
  text = (tmp_path / 'run.html').read_text()
  assert len(re.findall('<figure class="(RIGHT|WRONG)">', text)) == 10
  assert re.search(r'<b>(RIGHT|WRONG)</b><br>[a-z]+ \d+%', text)
  assert 'top-1 accuracy' in text
  assert 'lenet, 28 pixels' in text
  assert '<tr><th>codec</th><td>identity</td>' in text
  title = '/'.join(one_tower.parts[-2:])
  assert f'<title>{title}</title>' in text


def test_page_without_data_has_no_images(worker, one_tower, tmp_path):
  done = worker.run(
    'run_page',
    programs.as_flags(train_dir=one_tower, output=tmp_path / 'run.html'),
  )
  assert done.code == 0, done.err
  text = (tmp_path / 'run.html').read_text()
  assert '<h2>Run</h2>' in text and '<th>codec</th>' in text
  assert '<img' not in text


def test_runs_are_compared_in_one_page(worker, one_tower, tmp_path):
  done = worker.run(
    'run_page',
    programs.as_flags(
      runs=f'first={one_tower},again={one_tower.parent}',
      output=tmp_path / 'runs.html',
    ),
  )
  assert done.code == 0, done.err
  text = (tmp_path / 'runs.html').read_text()
  assert '<title>Runs</title>' in text
  assert '<th>first</th><th>again</th>' in text
  assert '<th>codec</th><td>identity</td><td>identity</td>' in text


@pytest.mark.parametrize(
  ('values', 'message'),
  [
    ({'eval_dir': '/none'}, 'eval_dir: expected a folder with metrics.jsonl'),
    ({'train_dir': '/none'}, 'train_dir: expected the --train_dir of a run'),
    ({'output': '/none/run.html'}, 'output: expected a file that can be writ'),
    ({'num_images': 0}, 'num_images: expected 1 or more'),
    ({'runs': 'a=/x'}, 'train_dir: expected none beside --runs'),
    ({'runs': '/x', 'train_dir': ''}, 'runs: expected NAME=FOLDER'),
    ({'runs': 'a=/none', 'train_dir': ''}, 'runs: expected the --train_dir'),
  ],
)
def test_what_cannot_be_shown_is_refused(values, message, worker, one_tower):
  words = {'train_dir': one_tower} | values
  done = worker.run('run_page', programs.as_flags(**words))
  assert done.code == 2
  assert message in done.error
