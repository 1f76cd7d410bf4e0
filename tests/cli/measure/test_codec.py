"""`terngrad measure codec` reports each code as soon as it is measured."""

import logging

import pytest

from terngrad import quiet
from terngrad.cli.measure import codec
from terngrad.measure import codec_table


@pytest.fixture
def measured(monkeypatch):
  """The texts whose measurement has begun; every one gives one row."""
  begun = []

  def measure(text, name, shapes, rounds, advance):
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
