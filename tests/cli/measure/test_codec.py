"""`terngrad measure codec` reports each code as soon as it is measured."""

import dataclasses
import logging

import pandas as pd
import pytest

from terngrad import errors
from terngrad import quiet
from terngrad.cli.measure import codec
from terngrad.measure import codec_table


@pytest.fixture
def measured(monkeypatch):
  """The texts whose measurement has begun; every one gives one row."""
  begun = []

  def measure(text, name, shapes, rounds, advance, end):
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


def test_the_seconds_of_a_code_are_divided_over_its_sizes(monkeypatch):
  shares, now = [], [100.0]
  monkeypatch.setattr(codec.time, 'perf_counter', lambda: now[0])

  def measure(text, name, shapes, rounds, advance, end):
    shares.append((name, text, end - now[0]))
    now[0] += 5 if text == 'topk' else 50
    return []

  monkeypatch.setattr(codec_table, 'measure', measure)
  monkeypatch.setattr(codec_table, 'table', pd.DataFrame)
  codec.act(
    codec.MeasureCodecFlags(
      codecs=('topk', 'sign'), sizes=('10', '20', '30'), nets=(), max_seconds=30
    )
  )
  assert shares == [
    *(('10', 'topk', 10.0), ('10', 'sign', 10.0)),
    # What a size leaves over is for those that follow.
    *(('20', 'topk', 12.5), ('20', 'sign', 0.0)),
    *(('30', 'topk', 20.0), ('30', 'sign', 0.0)),
  ]


@pytest.fixture
def on_gpu(monkeypatch):
  """A machine whose GPU measures nothing; the cases it is asked for."""
  asked = []

  def measure(device, text, name, shapes, rounds, advance, end):
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
