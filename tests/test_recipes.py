"""The recipes of CONTRIBUTING.md, followed in a copy of the project.

The code of a recipe is written into a temporary copy, where the recipe says;
the programs of the copy are then run as a user would.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import textwrap

import pytest

from tests.bin import clusters

ROOT = pathlib.Path(__file__).parents[1]
CONTRIBUTING = (ROOT / 'CONTRIBUTING.md').read_text(encoding='utf-8')


def blocks(title):
  """The indented blocks of a section, without their indentation."""
  section = re.split(r'(?m)^## ', CONTRIBUTING)
  (text,) = [s for s in section if s.startswith(f'{title}\n')]
  # In a list they are indented further than its words.
  found = re.findall(r'(?m)(?<=\n\n)(?:^ {4,}.*\n|^\n+(?= {4}))+', text)
  return [textwrap.dedent(one).strip('\n') + '\n' for one in found]


def insert(path, anchor, text, indent='', before=False):
  """Puts lines behind, or before, the only line that begins with `anchor`."""
  lines = path.read_text(encoding='utf-8').splitlines(keepends=True)
  (where,) = [i for i, line in enumerate(lines) if line.startswith(anchor)]
  where += not before
  lines[where:where] = textwrap.indent(text, indent).splitlines(keepends=True)
  path.write_text(''.join(lines), encoding='utf-8')


@pytest.fixture(scope='module')
def project(tmp_path_factory):
  """A copy of the packages with an addition by each recipe."""
  root = tmp_path_factory.mktemp('project')
  for package in ('terngrad', 'slim'):
    hidden = shutil.ignore_patterns('__pycache__')
    shutil.copytree(ROOT / package, root / package, ignore=hidden)
  (flag,) = blocks('To add a flag')
  config = root / 'terngrad/config'
  insert(config / 'optimizer.py', '  optimizer: str', flag, '  ', before=True)
  function, entry = blocks('To add an environment to launch in')
  resolvers = config / 'cluster.py'
  insert(resolvers, 'def _from_flags', f'{function}\n\n', before=True)
  insert(resolvers, 'RESOLVERS = {', entry, '  ')
  metrics = root / 'terngrad/training/metrics.py'
  for title, table in (
    ('To log another metric', 'TRAINING'),
    ('To score by another metric', 'EVALUATION'),
  ):
    (entry,) = blocks(title)
    insert(metrics, f'{table} = (', f'{entry.rstrip()},\n', '  ')
  source, described, preset = blocks('To add a data set')
  images = root / 'slim/datasets/small_images'
  (images / 'squares_source.py').write_text(source, encoding='utf-8')
  catalog = root / 'slim/datasets/catalog.py'
  insert(catalog, "    Dataset('image_folder'", described, '    ')
  insert(root / 'terngrad/cli/presets.py', 'PRESETS = {', preset, '  ')
  return root


def run(project, *words, code=0):
  """The output of `terngrad WORDS` of the copy, both streams."""
  program = 'import sys; from terngrad.cli import main; sys.exit(main.run())'
  done = subprocess.run(
    [sys.executable, '-c', program, *map(str, words)],
    cwd=project,
    env=os.environ | {'PYTHONPATH': str(project)},
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
    check=False,
    timeout=600,
  )
  assert done.returncode == code, done.stdout
  return done.stdout


def records(path):
  lines = path.read_text(encoding='utf-8').splitlines()
  return [json.loads(line) for line in lines]


def test_recipes_have_the_expected_blocks():
  for title, count in {
    'To add a flag': 1,
    'To add a data set': 3,
    'To add an environment to launch in': 2,
    'To log another metric': 1,
    'To score by another metric': 1,
  }.items():
    assert len(blocks(title)) == count, title


@pytest.mark.slow
def test_every_recipe_works_in_a_copy(project):
  folder = project / 'squares'
  run(
    project,
    *('convert', 'dataset', '--dataset_name=squares'),
    f'--dataset_dir={folder}',
  )
  (port,) = clusters.free_ports(1)
  train = (
    *('train', 'squares', f'--data_dir={folder}', '--train_dir=run'),
    *('--max_steps=10', '--save_iter=5', '--num_nodes=2', '--batch_size=8'),
    *('--exchange=collective', '--cluster=queue:1', f'--cluster_port={port}'),
  )
  output = run(project, *train, '--warmth=0.75')
  assert re.search(r'worst \d+\.\d\d;', output)
  losses = [
    r for r in records(project / 'run/metrics.jsonl') if 'worst_loss' in r
  ]
  assert all(r['worst_loss'] >= r['entropy_loss'] for r in losses)
  assert '--warmth (float, 0.5)' in run(project, 'train', 'squares', '--help')
  refused = run(project, *train, '--warmth=0.25', '--max_steps=20', code=2)
  assert 'warmth 0.25, received one with 0.75' in refused
  scored = run(
    project,
    *('eval', 'squares', f'--data_dir={folder}', '--checkpoint_dir=run'),
    *('--eval_dir=scores', '--run_once'),
  )
  assert re.search(r'log likelihood = -\d\.\d{4}', scored)
