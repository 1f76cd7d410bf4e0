"""Quotients of powers of two are those of IEEE 754, without a division."""

import re

import numpy as np
import pytest
import tensorflow as tf

from terngrad.codec.methods import registry
from terngrad.codec.stages import division
from terngrad.codec.stages import tracing
from terngrad.reduce import bucketing
from terngrad.reduce import halves
from tests.step import small


def normal_numbers():
  """float32 of all exponents of which 2**23 / x is normal."""
  numbers = np.random.default_rng(0)
  fractions = numbers.integers(0, 2**23, 200_000)
  exponents = numbers.integers(1, 255, fractions.size)
  edges = [0, 1, 2, 2**22 - 1, 2**22, 2**22 + 1, 2**23 - 2, 2**23 - 1]
  fractions = np.concatenate([fractions, np.tile(edges, 254)])
  exponents = np.concatenate([exponents, np.repeat(np.arange(1, 255), 8)])
  bits = (exponents << 23) + fractions
  return bits.astype(np.uint32).view(np.float32)


@pytest.mark.parametrize('exponent', [0, 16, 22, 23])
@pytest.mark.parametrize('compiles', [False, True])
def test_quotients_are_correctly_rounded(exponent, compiles):
  values = normal_numbers()
  with np.errstate(over='ignore'):
    expected = np.float32(2.0**exponent) / values
  usable = np.isfinite(expected) & (np.abs(expected) >= 2.0**-126)
  assert usable.mean() > 0.85
  divide = tracing.function(
    lambda v: division.divide_power_of_two(exponent, v), jit_compile=compiles
  )
  found = divide(tf.constant(values)).numpy()
  np.testing.assert_array_equal(
    found[usable].view('i4'), expected[usable].view('i4')
  )


def test_quotients_of_zero_and_of_what_is_not_finite_are_zero():
  values = tf.constant([0.0, 1e-40, np.inf, np.nan])
  found = division.divide_power_of_two(23, values)
  np.testing.assert_array_equal(found, [0.0] * 4)


# XLA compiles these divisions for GPUs to an approximation.
_DIVISION = re.compile(
  r'%?([\w.-]+) = f32\[[\d,]*\]\S* divide\([^,]*?([\w.-]+), [^,]*?([\w.-]+)\)'
)
# Norms of columns, whose sums have another order on GPUs in any case.
_DEVICE_BITS = ('powersgd',)
CODES = sorted(
  {
    *registry.CODECS,
    *registry.METHODS,
    'error_feedback+topk',
    'qsgd:norm=l2',
    'ternary:scaler_rule=stddev',
    'ternary:group_size=64',
    'minmax:bits=8,group_size=0',
  }
  - {*_DEVICE_BITS}
)


def divisions(text):
  """Float32 divisions by a value that XLA does not know when it compiles."""
  constants = set(re.findall(r'%?([\w.-]+) = \S+ constant\(', text))
  copied = (
    r'%?([\w.-]+) = \S+ (?:broadcast|reshape|convert)\(\S*? ?%?([\w.-]+)\)'
  )
  for name, source in re.findall(copied, text):
    if source in constants:
      constants.add(name)
  return [
    found.group(0)
    for found in _DIVISION.finditer(text)
    if found.group(3) not in constants
  ]


@pytest.mark.parametrize('code', CODES)
@pytest.mark.gate_every(8)
def test_no_code_divides_float32(code):
  shapes = [(300, 7), (64,), (1000,)]
  specs = [
    small.policy.VariableSpec(f'v{i}', shape) for i, shape in enumerate(shapes)
  ]
  method = registry.method(code, 2)
  codec = bucketing.gradient_codec(specs, [method] * len(shapes))
  programs = halves.Halves(codec, 2)
  gradients = [tf.ones(shape) for shape in shapes]
  rows = [
    tf.zeros([2, codec.round_words(number)], tf.int32)
    for number in range(codec.num_rounds)
  ]
  probe = tf.ones([codec.num_probes])
  for function, arguments in (
    (programs.send, (gradients, rows)),
    (programs.receive, (rows, probe)),
  ):
    compiled = tracing.function(function.python_function, jit_compile=True)
    text = compiled.experimental_get_compiler_ir(*arguments)(stage='hlo')
    assert divisions(text) == []


def test_a_division_is_found():
  function = tracing.function(lambda a, b: a / b + a / 3.0, jit_compile=True)
  a = tf.ones([5])
  text = function.experimental_get_compiler_ir(a, a)(stage='hlo')
  assert len(divisions(text)) == 1
