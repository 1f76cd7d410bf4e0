"""Mixed precision: layers compute in 16 bits with float32 parameters."""

import contextlib
from collections.abc import Iterator

import keras


@contextlib.contextmanager
def layer_dtype(dtype: str) -> Iterator[None]:
  """Sets the compute dtype of the Keras layers that the block makes.

  Variables stay float32. A layer with an explicit dtype keeps it: the logits of
  every net are float32.

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
