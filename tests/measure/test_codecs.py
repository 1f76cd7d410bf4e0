"""Measured quality of codecs matches formulas and detects a biased codec."""

import logging
import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf

from terngrad import native
from terngrad.codec import chain
from terngrad.codec.methods import registry
from terngrad.measure import codecs as measures
from terngrad.measure import gradient_codecs
from terngrad.measure import quality as qualities
from terngrad.measure import rivals
from tests.codec import rounds

SIZES = (3000, 7)


def gaussian():
  rng = np.random.default_rng(0)
  return [tf.constant(rng.normal(size=n), tf.float32) for n in SIZES]


def codec_of(method):
  return rounds.codec_of(method, [(n,) for n in SIZES])


def quality_of(method, draws):
  codec = codec_of(method)
  return qualities.measure(codec, codec, gaussian(), draws)


def test_quality_of_plain_floats_is_perfect():
  quality = quality_of(registry.parse('identity'), 2)
  assert quality.error == 0.0
  assert quality.bits_by_formula == quality.bits_by_length
  assert np.isnan(quality.entropy) and np.isnan(quality.bias)


ERRORS = re.findall(
  r'^\| `(\S+)` \| (\d\.\d\d) \|$',
  (pathlib.Path(__file__).parents[2] / 'docs/keras.md').read_text(),
  re.MULTILINE,
)


@pytest.mark.slow
@pytest.mark.parametrize(('text', 'printed'), ERRORS)
def test_the_document_has_the_usual_errors_of_codes(text, printed):
  codec = gradient_codecs.build(text, [(256, 256)], 1)
  rng = np.random.default_rng(0)
  gradient = tf.constant(rng.standard_normal((256, 256), np.float32))
  error = qualities.measure(codec, codec, [gradient], 2, 1).error
  # `compression_error` is of norms, not of squares.
  assert error**0.5 == pytest.approx(float(printed), abs=0.015)


def test_the_document_s_errors_are_found():
  assert [text for text, _ in ERRORS][:1] == ['ternary'] and len(ERRORS) == 4


@pytest.mark.statistical
def test_quality_of_ternary_codes_matches_the_formulas():
  gradients = gaussian()
  codec = registry.parse('ternary:clip_factor=0')
  quality = quality_of(codec, 64)
  values = [g.numpy().astype(np.float64) for g in gradients]
  # Each element's variance is s |g| - g**2.
  variance = sum(np.sum(np.abs(g).max() * np.abs(g) - g**2) for g in values)
  energy = sum(np.sum(g**2) for g in values)
  np.testing.assert_allclose(quality.error, variance / energy, rtol=0.05)
  density = sum(np.sum(np.abs(g) / np.abs(g).max()) for g in values) / 3007
  # One draw of 3007 elements: a few hundredths of a bit.
  expected = -density * np.log2(density / 2) - (1 - density) * np.log2(
    1 - density
  )
  np.testing.assert_allclose(quality.entropy, expected, rtol=0.05)
  assert abs(quality.bias) < 5


def test_the_bias_score_detects_a_biased_codec():
  codec = registry.parse('ternary')

  class Shrunk(chain.Chain):
    def decode_sum(self, parts, shared_probe, shapes, scale=1.0):
      return codec.decode_sum(parts, shared_probe, shapes, 0.9 * scale)

  shrunk = Shrunk(codec.stages)
  assert quality_of(shrunk, 32).bias < -5


@pytest.mark.parametrize(
  'fast',
  [pytest.param(False, marks=pytest.mark.slow), True],
  ids=['twin', 'native'],
)
def test_jobs_run(fast):
  codec = registry.parse('ternary')
  if fast:
    if not native.available():
      pytest.skip('the native kernels are not built here')
    codec = codec.on_kernels()
  jobs = measures.jobs(codec_of(codec), gaussian())
  ends = ['update', 'fused_update'] if fast else ['update']
  assert list(jobs) == ['probe', 'encode', 'decode', 'decode_sum', *ends]
  for job in jobs.values():
    assert np.isfinite(job(2))


@pytest.mark.parametrize('fast', [False, True], ids=['twin', 'native'])
@pytest.mark.gate_every(2)
def test_the_mean_of_eight_equal_payloads_is_that_of_one(fast):
  codec = registry.parse('identity')
  if fast:
    if not native.available():
      pytest.skip('the native kernels are not built here')
    codec = codec.on_kernels()
  jobs = measures.jobs(codec_of(codec), gaussian())
  one, several = jobs['decode'](2), jobs['decode_sum'](2)
  assert several == pytest.approx(one, rel=1e-5)


@pytest.mark.slow
def test_codecs_of_many_sizes_cause_no_retracing_warning(caplog):
  codec = registry.parse('identity')
  with caplog.at_level(logging.WARNING, 'tensorflow'):
    for size in range(1, 7):
      gradients = [tf.ones([size])]
      made = rounds.codec_of(codec, [(size,)])
      measures.jobs(made, gradients)
      qualities.measure(made, made, gradients, 2)
  assert 'retracing' not in caplog.text


def test_rivals_run_and_numpy_decodes_ternary_values():
  (gradient, _) = gaussian()
  found = {name: build(gradient) for name, build in rivals.RIVALS.items()}
  assert list(found) == ['numpy', 'naive TensorFlow', 'int8, as GRACE']
  for rival in found.values():
    for job in rival.jobs.values():
      job(2)
  decoded = found['numpy'].jobs['decode'](1)
  scaler = 2.5 * gradient.numpy().std()
  levels = np.unique(np.round(decoded / scaler, 5))
  np.testing.assert_array_equal(levels, [-1, 0, 1])
  assert np.all(decoded * gradient.numpy() >= 0)
