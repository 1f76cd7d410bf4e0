"""Every example is short, complete, and does what it says."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / 'examples').glob('*.py'))


def run(name, *words, before=()):
  """What a program prints on both streams."""
  environment = {k: v for k, v in os.environ.items() if k != 'TF_CONFIG'}
  ended = subprocess.run(
    [*before, sys.executable, ROOT / 'examples' / name, *words],
    capture_output=True,
    check=False,
    env=environment | {'PYTHONPATH': str(ROOT), 'TF_CPP_MIN_LOG_LEVEL': '3'},
    text=True,
    timeout=600,
  )
  assert ended.returncode == 0, ended.stdout + ended.stderr
  return ended.stdout + ended.stderr


def last(pattern, text):
  return float(re.findall(pattern, text)[-1])


def test_there_are_examples():
  assert len(EXAMPLES) >= 4


@pytest.mark.parametrize('path', EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_short_and_uses_only_public_names(path):
  text = path.read_text(encoding='utf-8')
  assert len(text.splitlines()) < 80
  assert not re.search(r'(from|import) terngrad\.(?!keras$)', text, re.M)
  assert f'python examples/{path.name}' in text


@pytest.mark.slow
@pytest.mark.cluster
class TestRun:
  def test_mnist_learns_with_1_6_bits_an_element(self):
    text = run('keras_mnist.py', 'ternary', '4')
    assert last(r'test accuracy ([\d.]+)%', text) > 85
    assert 1.6 < last(r'bits_per_element: ([\d.]+)', text) < 1.7

  def test_a_text_model_learns_and_logs_uncompressed_gradients(self):
    text = run('text_embedding.py')
    assert last(r'test accuracy ([\d.]+)%', text) > 95
    assert text.count('embeddings. Sparse gradients') == 1

  def test_a_net_is_fine_tuned(self):
    text = run('fine_tune.py', 'none', '4')
    # A third by chance.
    assert last(r'last block: test accuracy ([\d.]+)%', text) > 40
    losses = [float(n) for n in re.findall(r'loss: ([\d.]+)', text)]
    assert losses[3] < losses[0] and losses[-1] < losses[4]

  @pytest.mark.skipif(
    importlib.util.find_spec('torch') is None, reason='torch is not installed'
  )
  def test_processes_of_pytorch_end_with_equal_parameters(self):
    launch = (sys.executable, '-m', 'terngrad.cli.main', 'launch', '-n', '2')
    text = run('local_steps_torch.py', before=(*launch, '--'))
    assert last(r'loss ([\d.]+)', text) < 1
    first, second = re.findall(r'parameters (\w+)', text)
    assert first == second

  def test_two_processes_learn_the_same(self):
    launch = (sys.executable, '-m', 'terngrad.cli.main', 'launch', '-n', '2')
    words = 'error_feedback+topk:ratio=0.05', '100'
    text = run('two_processes.py', *words, before=(*launch, '--'))
    assert last(r'step 100: loss ([\d.]+)', text) < 0.01
    first, second = re.findall(r'weights ([0-9a-f]{8})', text)
    assert first == second
