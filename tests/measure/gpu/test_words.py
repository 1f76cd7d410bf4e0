"""The words of two devices are compared bit by bit."""

import numpy as np
import pytest
import tensorflow as tf

from terngrad.codec.methods import registry
from terngrad.measure import gradient_codecs
from terngrad.measure.gpu import parts
from terngrad.measure.gpu import words

CPU = '/CPU:0'


def differences(text, shapes):
  codec = gradient_codecs.build(text, shapes, words.codecs.WORKERS)
  return words.differences(CPU, codec)


@pytest.mark.parametrize('text', ['ternary', 'topk'])
@pytest.mark.gate_every(2)
def test_programs_of_xla_equal_the_cpu_s_kernels(text):
  found = differences(text, [(31, 17), (7,)])
  assert found.words == found.floats == 0
  assert found.of_words > 0
  assert found.probes <= 1e-6


def test_other_words_are_counted(monkeypatch):
  encode = words.codecs.WorkerPrograms.run

  def run(self, values, probe=None):
    sent = encode(self, values, probe)
    if probe is None:  # The CPU.
      return sent
    change = np.eye(1, sent.words[0].shape[0], 5, dtype=np.int32)[0]
    return sent._replace(words=[tf.bitwise.bitwise_xor(sent.words[0], change)])

  monkeypatch.setattr(words.codecs.WorkerPrograms, 'run', run)
  found = differences('sign', [(400,)])
  assert found.words == 1
  assert found.floats == 0  # Both decode the words of the CPU.


def test_equal_bits_of_nan_are_equal_and_zeros_of_two_signs_are_not():
  nan, zeros = tf.constant([np.nan, 1.0]), tf.constant([0.0, 0.0])
  assert words._count([nan], [nan]) == 0
  assert words._count([zeros], [-zeros]) == 2


def test_every_code_is_reported_with_a_limit_except_float_sums(monkeypatch):
  monkeypatch.setattr(
    words, 'differences', lambda *_: words.Differences(0, 9, 0, 0.0)
  )
  found = []
  words.check(parts.CheckSettings(CPU, True), found.append)
  assert [figure.name for figure in found] == [*registry.list_kinds()]
  free = {figure.name for figure in found if figure.limit is None}
  assert free == {'powersgd'}


@pytest.mark.slow
def test_all_codes_of_xla_equal_the_cpu_s_kernels():
  found = []
  words.check(parts.CheckSettings(CPU, True), found.append)
  assert [f.name for f in found if f.exceeds_limit] == []
