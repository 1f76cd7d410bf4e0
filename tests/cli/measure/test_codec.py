"""`terngrad measure codec` reports each code as soon as it is measured."""

import dataclasses
import logging

import pandas as pd
import pytest

from slim.datasets.records import progress
from terngrad import errors
from terngrad import quiet
from terngrad.cli.measure import codec
from terngrad.measure import codec_table


@pytest.fixture
def measured(monkeypatch):
  """The texts whose measurement has begun; every one gives one row."""
  begun = []

  def measure(text, name, shapes, rounds, advance, budget, cases_left):
    begun.append(text)
    for _ in range(rounds + 1):
      advance()
    return [
      {
        'gradient': name,
        'codec': text,
        'kind': 'graph',
        'probe_to_copy': 1.0,
        'encode_to_copy': 2.0,
        'bits_by_length': 1.6,
        'entropy': float('nan'),
        'error': 0.5,
      }
    ]

  monkeypatch.setattr(codec_table, 'measure', measure)
  return begun


def test_a_line_follows_each_code_and_the_table_comes_last(measured, capsys):
  texts = ('topk', 'error_feedback+topk')
  flags = codec.MeasureCodecFlags(codecs=texts, sizes=('10',), nets=())
  codec.act(flags)
  lines = capsys.readouterr().out.splitlines()
  assert measured == [*texts]
  for text, line in zip(texts, lines, strict=False):
    assert line == (
      f'10  {text} (graph): copies: probe 1, encode 2; 1.6 bits, error 0.5'
    )
  assert lines[2].split()[:3] == ['gradient', 'codec', 'kind']
  # Not NaN.
  assert lines[3].split()[-2:] == ['-', '0.5'] and 'NaN' not in ''.join(lines)


@pytest.fixture
def budgeted(monkeypatch):
  """What is measured, by (case, code, seconds left, cases left)."""
  asked, now = [], [100.0]
  monkeypatch.setattr(codec.turns.time, 'perf_counter', lambda: now[0])

  def measure(text, name, shapes, rounds, advance, budget, cases_left):
    asked.append((name, text, budget.left, cases_left))
    with budget.piece('native', sum(size for (size,) in shapes)) as piece:
      now[0] += 5
      piece.prepared([])
    advance()
    yield {'gradient': name, 'codec': text, 'kind': 'native'} | BITS

  monkeypatch.setattr(codec_table, 'measure', measure)
  return asked


BITS = {'bits_by_length': 1.6}


def test_each_code_has_a_budget_and_small_gradients_come_first(
  budgeted, capsys
):
  codec.act(
    codec.MeasureCodecFlags(
      codecs=('topk', 'sign'), sizes=('20', '30', '10'), nets=(), max_seconds=30
    )
  )
  assert budgeted == [
    ('10', 'topk', 30, 3),
    ('10', 'sign', 30, 3),
    ('20', 'topk', 25, 2),
    ('20', 'sign', 25, 2),
    ('30', 'topk', 20, 1),
    ('30', 'sign', 20, 1),
  ]
  # The table has the order of the command line.
  lines = capsys.readouterr().out.splitlines()[-6:]
  assert [line.split()[0] for line in lines] == ['20'] * 2 + ['30'] * 2 + [
    '10'
  ] * 2


def test_the_bar_counts_the_seconds_that_are_left(budgeted, monkeypatch):
  shown = []

  class Bar(progress.Progress):
    """A bar whose states are kept."""

    def update(self, n=1):
      super().update(n)
      shown.append((self.n, self.desc.removesuffix(': ')))

  monkeypatch.setattr(codec.progress, 'Progress', Bar)
  codec.act(
    codec.MeasureCodecFlags(
      codecs=('topk', 'sign'), sizes=('10', '20'), nets=(), max_seconds=30
    )
  )
  assert shown == [
    (0, '10 topk, at most 60 s left'),
    (5, '10 topk, at most 55 s left'),
    (5, '10 sign, at most 55 s left'),
    (10, '10 sign, at most 50 s left'),
    (10, '20 topk, at most 50 s left'),
    (15, '20 topk, at most 45 s left'),
    # What a code leaves over is for nobody.
    (35, '20 sign, at most 25 s left'),
    (40, '20 sign, at most 20 s left'),
  ]


def test_other_implementations_have_a_budget_too(monkeypatch, measured, capsys):
  asked = []

  def measure_rivals(name, shapes, rounds, budget, cases_left):
    asked.append((name, budget.seconds, cases_left))
    yield {'gradient': name, 'codec': 'numpy', 'kind': 'rival'} | BITS

  monkeypatch.setattr(codec_table, 'measure_rivals', measure_rivals)
  codec.act(
    codec.MeasureCodecFlags(
      codecs=('sign',), sizes=('10', '20'), nets=(), compare=True
    )
  )
  assert asked == [('10', 40, 2), ('20', 40, 1)]
  assert '10  numpy (rival): copies: ; 1.6 bits' in capsys.readouterr().out


def test_rows_that_were_not_measured_are_in_the_table(
  monkeypatch, capsys, tmp_path
):
  def measure(text, name, shapes, rounds, advance, budget, cases_left):
    row = {'gradient': name, 'codec': text, 'kind': 'native'}
    yield {**row, 'encode_to_copy': 2.0, 'decode_to_copy': 3.0} | BITS
    yield {**row, 'kind': 'XLA'} | codec_table.note(budget)

  monkeypatch.setattr(codec_table, 'measure', measure)
  codec.act(
    codec.MeasureCodecFlags(
      codecs=('sign',),
      sizes=('10',),
      nets=(),
      max_seconds=3.5,
      output=str(tmp_path),
    )
  )
  lines = capsys.readouterr().out.splitlines()
  words = 'not measured: would exceed --max_seconds=3.5'
  assert lines[1] == f'10  sign (XLA): {words}'
  rows = [line for line in lines if 'copies' not in line][-2:]
  assert rows[0].endswith(' -') and rows[1].endswith(words)
  table = pd.read_csv(tmp_path / 'measure_codec.csv')
  assert table['note'].tolist()[1] == words


@pytest.fixture
def on_gpu(monkeypatch):
  """A machine whose GPU measures nothing; the cases it is asked for."""
  asked = []

  def measure(device, text, name, shapes, rounds, advance, budget, cases_left):
    asked.append((device, shapes))
    return [
      {
        **{'gradient': name, 'codec': text, 'kind': 'XLA, device'},
        **{'encode_to_copy': 2.0, 'bits_by_formula': 1.6},
      }
    ]

  monkeypatch.setattr(codec.device_codec_table, 'measure', measure)
  monkeypatch.setattr(codec.devices, 'check_exist', lambda names: None)
  return asked


def test_a_gpu_measures_large_gradients_unless_others_are_chosen(
  on_gpu, capsys
):
  flags = codec.MeasureCodecFlags(codecs=('sign',), device='gpu:1')
  codec.act(flags)
  assert on_gpu == [('/GPU:1', [(2**27,)])]
  out = capsys.readouterr().out
  assert out.startswith('1.34e+08  sign (XLA, device): copies: encode 2; 1.6')
  codec.act(dataclasses.replace(flags, sizes=('1e3',), nets=()))
  assert on_gpu[1:] == [('/GPU:1', [(1000,)])]
  assert '1e+03: may fit in the cache of gpu:1' in capsys.readouterr().out


def test_the_first_cpu_gives_the_usual_rows(measured, on_gpu):
  for name in ('cpu:0', '/CPU:0'):
    codec.act(
      codec.MeasureCodecFlags(
        codecs=('sign',), sizes=('10',), nets=(), device=name
      )
    )
  assert measured == ['sign'] * 2
  assert on_gpu == []


def test_a_cpu_measures_several_sizes_and_nets_by_default():
  names = [*codec._cases(codec.MeasureCodecFlags(), '')]
  assert names[0] == '1e+03' and names[-2:] == ['cifar10_alexnet', 'lenet']


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'device': 'gpu:0'}, 'received /GPU:0, but there are 0 of that kind'),
    ({'device': 'tpu:0'}, "received .'tpu:0'"),
    ({'device': 'cpu:1'}, 'cpu:1'),
  ],
)
def test_devices_that_cannot_be_measured_are_refused(changes, message):
  with pytest.raises(errors.ConfigError, match=message):
    codec.act(codec.MeasureCodecFlags(codecs=('sign',), **changes))


def test_other_implementations_run_on_cpus_only(on_gpu):
  flags = codec.MeasureCodecFlags(device='gpu:0', compare=True)
  with pytest.raises(errors.ConfigError, match='compare: expected it to be'):
    codec.act(flags)


def test_retracing_warnings_are_dropped_and_others_are_not(caplog):
  logger = logging.getLogger('tensorflow')
  logger.propagate, before = True, logger.propagate
  retracing = '5 out of the last 5 calls to f triggered tf.function retracing.'
  try:
    with caplog.at_level(logging.WARNING, 'tensorflow'):
      with quiet.suppressed_retracing_warnings():
        logger.warning(retracing)
        logger.warning('another')
      logger.warning(retracing)
  finally:
    logger.propagate = before
  assert caplog.messages == ['another', retracing]
