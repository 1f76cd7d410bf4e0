"""The loop in docs/custom_loop.md uses only public names, and learns."""

import pathlib
import re

import keras
import numpy as np
import pytest

import terngrad
from terngrad.compression import trainer

TEXT = pathlib.Path(__file__).parents[1] / 'docs' / 'custom_loop.md'


@pytest.fixture(scope='module')
def program():
  (code,) = re.findall('```python\n(.*?)```', TEXT.read_text(), re.DOTALL)
  return code


def test_the_loop_uses_only_public_names(program):
  used = set(re.findall(r'terngrad\.(\w+)', program))
  assert used and used <= set(terngrad.__all__)
  assert not re.search(r'(from|import) terngrad\.', program)


def test_the_loop_learns_and_sends_little(program, capsys):
  exec(compile(program, str(TEXT), 'exec'), {})
  lines = capsys.readouterr().out.splitlines()
  losses = [float(n) for n in re.findall(r'loss ([\d.]+)', '\n'.join(lines))]
  bits = [float(n) for n in re.findall(r'([\d.]+) bits', '\n'.join(lines))]
  assert losses[-1] < losses[0] / 3
  # 5 % of the elements, 64 bits each, and biases as they are.
  assert all(3 < each < 5.5 for each in bits)
  (right,) = re.findall(r'right: (\d+)%', lines[-1])
  assert int(right) >= 90


def test_an_unknown_code_is_refused_by_name():

  model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
  with pytest.raises(ValueError, match='Did you mean'):
    trainer.Trainer(model, 'ternry')


def small(**options):
  model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
  return trainer.Trainer(model, **options)


@pytest.mark.parametrize(
  'options',
  [
    {'num_workers': 0},
    {'devices': '/CPU:0'},
    {'devices': ()},
    {'devices': ('/CPU:0', '/CPU:0')},
  ],
  ids=str,
)
def test_workers_and_devices_that_do_not_fit_are_refused(options):
  with pytest.raises(ValueError, match='devices: expected a list of 1 or more'):
    small(**options)


@pytest.mark.parametrize(
  ('images', 'labels'),
  [([3, 8, 2], [3, 8]), ([8, 2], [8]), ([2, 8, 2], [16]), ([2, 8, 2], [2, 7])],
)
def test_examples_of_another_shape_are_refused(images, labels):
  with pytest.raises(ValueError, match=r'images \[2, b, ...\] and labels'):
    small(num_workers=2).step(np.zeros(images), np.zeros(labels), 0.1)


@pytest.mark.parametrize(
  ('device', 'message'),
  [
    # TensorFlow would take another device without a word.
    ('/CPU:9', 'expected devices of this machine, received /CPU:9'),
    ('/GPU:9', 'expected devices of this machine, received /GPU:9'),
    ('CPU', 'expected names such as /CPU:0'),
    (0, 'expected names such as /CPU:0 or /GPU:0, received 0'),
  ],
)
def test_a_device_that_does_not_exist_is_refused(device, message):
  with pytest.raises(ValueError, match=message):
    small(devices=[device])


@pytest.mark.parametrize('rate', [float('nan'), float('inf'), 3.5e38, -0.1])
def test_a_learning_rate_that_is_no_finite_float32_is_refused(rate):
  made = small()
  with pytest.raises(ValueError, match='learning_rate: expected a finite num'):
    made.step(np.zeros([1, 8, 2]), np.zeros([1, 8], int), rate)
  assert made.steps == 0


def test_in_float32_receives_which_variables_are_logits():

  layers = [
    keras.layers.Dense(3, name='fc'),
    keras.layers.Dense(2, name='logits'),
  ]
  seen = {}
  trainer.Trainer(
    keras.Sequential([keras.Input((2,)), *layers]),
    in_float32=lambda spec: seen.setdefault(spec.name, spec.is_logits),
  )
  assert seen == {
    'fc/kernel': False,
    'fc/bias': False,
    'logits/kernel': True,
    'logits/bias': True,
  }
