"""What every method keeps, whatever it sends: codes of one message and others.

The claims are in `terngrad.conformance`, for all codes. Codes of ternary digits
have a longer class of tests too, `tests.codec.conformance`.
"""

import functools

import pytest

from terngrad.codec.methods import registry
from terngrad.conformance import claims
from terngrad.conformance import failures
from terngrad.conformance import subject as subjects

TEXTS = (
  'asymmetric',
  'asymmetric:clip_factor=0,group_size=100',
  'bf16',
  'demo:count=8,signs=0',
  'diana+natural',
  'drive',
  'e3m0',
  'eden:bits=2',
  'eden:bits=3',
  'eden:bits=4',
  'eden3',
  'ef21_sgdm+topk:ratio=0.1',
  'fp16',
  'fp8',
  'fp8:kind=e5m2,group_size=0',
  'identity',
  'minmax:bits=1',
  'minmax:bits=2,group_size=0',
  'minmax:bits=8,group_size=100',
  'natural',
  'one_bit:group_size=100',
  'powersgd',
  'qsgd:levels=1,group_size=0,norm=l2',
  'qsgd:levels=127,group_size=100',
  'randomk:ratio=0.1',
  'randomk:ratio=0.1,unbiased=1',
  'sign',
  'sign:decide=majority',
  'sparseloco:chunk=64,kept=8',
  'statistical:group_size=100',
  'stc:ratio=0.1',
  'ternary:clip_factor=0',
  'thc',
  'three_lc:sparsity=1',
  'threshold:above=1,capacity=0.3',
  'topk:ratio=0.1',
)
# Wrappers and aliases, which the fast gate leaves out.
WRAPPED = (
  'bidirectional+sign',
  'demo',
  'demo:mean=workers,signs=0,count=1',
  'dgc:ratio=0.1',
  'diana+qsgd:levels=1',
  'diana:alpha=0.1+randomk:ratio=0.2,unbiased=1',
  'ef21+qsgd',
  'ef_signsgd',
  'error_feedback+e3m0',
  'error_feedback+powersgd',
  'error_feedback+topk:ratio=0.1',
  'int8',
  'one_bit_adam+sign',
)
# The others in `scripts/test.sh --all`: to compile takes seconds.
COMPILED = (
  'eden:bits=2',
  'fp8',
  'qsgd:levels=127,group_size=100,norm=l2',
  'stc:ratio=0.1',
  'thc',
  'threshold:above=1,capacity=0.3',
)
MORE_COMPILED = (
  'asymmetric',
  'bf16',
  'diana+qsgd:levels=1',
  'e3m0:group_size=100',
  'eden:bits=4',
  'ef21_sgdm:eta=0.3+sign',
  'fp8:kind=e5m2,group_size=0',
  'minmax:bits=2,group_size=0',
  'minmax:bits=8,group_size=100',
  'natural',
  'one_bit:group_size=100',
  'qsgd:levels=1,group_size=0',
  'randomk:ratio=0.1',
  'sign:decide=majority',
  'sparseloco:chunk=64,kept=8',
  'statistical:group_size=100',
  'three_lc:sparsity=1',
)
BY_NAME = {claim.__name__: claim for claim in claims.CLAIMS}
IS_COMPILED = 'compiled_code_gives_the_bits_of_eager_code'
IS_UNBIASED = 'mean_over_draws_is_the_gradient_if_unbiased'
# Every n-th case of a claim is in the fast gate.
GATE_EVERY = {
  'declarations_are_plain_values': 1,
  'payload_has_the_declared_number_of_words': 2,
  'probe_shows_elements_that_are_not_finite': 1,
  'any_words_decode_to_the_declared_shapes': 2,
  'scale_is_preserved': 15,
}


@functools.cache
def subject_of(text):
  return subjects.MethodUnderTest(
    text, lambda workers: registry.method(text, workers)
  )


def keep(claim, text):
  """Fails unless a code keeps a claim; skips what does not concern it."""
  try:
    claim(subject_of(text))
  except failures.NotApplicable as reason:
    pytest.skip(str(reason))


def pytest_generate_tests(metafunc):
  """Gives each claim the codes that it concerns."""
  if metafunc.function is test_every_code_keeps_every_claim:
    cases = []
    for number, name in enumerate(BY_NAME):
      if name == IS_COMPILED:
        continue
      texts = [t for t in TEXTS if name != IS_UNBIASED or unbiased(t)]
      every = GATE_EVERY.get(name, 4)
      for i, text in enumerate(texts):
        slow = [] if (i + number) % every == 0 else [pytest.mark.slow]
        if name == IS_UNBIASED:
          slow.append(pytest.mark.statistical)
        cases.append(pytest.param(name, text, marks=slow))
      cases += [
        pytest.param(name, text, marks=pytest.mark.slow) for text in WRAPPED
      ]
    metafunc.parametrize(('name', 'text'), cases)


def unbiased(text):
  return registry.method(text, subjects.WORKERS).traits.unbiased


def test_every_code_keeps_every_claim(name, text):
  keep(BY_NAME[name], text)


@pytest.mark.parametrize(
  'text',
  [
    *COMPILED,
    *(pytest.param(text, marks=pytest.mark.slow) for text in MORE_COMPILED),
  ],
)
@pytest.mark.gate_every(6)
def test_compiled_code_gives_the_bits_of_eager_code(text):
  keep(BY_NAME[IS_COMPILED], text)
