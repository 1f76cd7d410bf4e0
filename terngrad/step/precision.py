"""Mixed precision: layers that compute in 16 bits on float32 parameters."""

import contextlib
from collections.abc import Iterator

import keras


@contextlib.contextmanager
def of_layers(dtype: str) -> Iterator[None]:
  """Layers made inside compute in `dtype`.

  Their variables, and what a layer with a dtype of its own returns (the logits
  of every net: float32), are not changed by it.

  Args:
    dtype: 'float32', 'bfloat16' or 'float16'.
  """
  before = keras.config.dtype_policy()
  policy = dtype if dtype == 'float32' else f'mixed_{dtype}'
  keras.config.set_dtype_policy(policy)
  try:
    yield
  finally:
    keras.config.set_dtype_policy(before)
