"""`fit` with the default of `compile`, where Keras has XLA compile the step."""

import numpy as np
import pytest

from tests import seeming_gpu
from tests.keras import small


def fitted(codec):
  made = small.compiled(codec)
  assert made.jit_compile
  losses = small.fit(made, epochs=3)['loss']
  assert losses[-1] < losses[0]
  return made


@pytest.mark.parametrize(
  'codec',
  [
    # It draws random bits, and compiles faster than the others.
    'ternary:clip_factor=0,packing=two_bit',
    *(
      pytest.param(c, marks=pytest.mark.slow)
      for c in ('ternary', 'int8', small.FEEDBACK)
    ),
  ],
)
def test_fit_works_where_keras_compiles_by_default(monkeypatch, codec):
  seeming_gpu.pretend(monkeypatch)
  fitted(codec)


@pytest.mark.slow
def test_a_compiled_identity_trains_like_no_wrapper(monkeypatch):
  seeming_gpu.pretend(monkeypatch)
  found, expected = (
    small.weights(fitted(codec)) for codec in ('identity', None)
  )
  for one, other in zip(found, expected, strict=True):
    # XLA fuses other operations, so sums of some ten products differ.
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
