"""What becomes of workers' states where the number of workers changes."""

import numpy as np

from terngrad.codec import method as methods


def for_workers(
  state: methods.State, rows: np.ndarray, count: int
) -> np.ndarray:
  """The states of another number of workers.

  Args:
    state: `method.State` of workers.
    rows: float32 array [workers of then, ...].
    count: workers of now.

  Returns:
    float32 array [count, *state.shape].
  """
  if len(rows) == count:
    return rows
  if state.dealt == methods.RANGES:
    whole = np.zeros([count, *state.shape], np.float32)
    known = min(whole.size, rows.size)
    whole.reshape(-1)[:known] = rows.reshape(-1)[:known]
    return whole
  mean = np.mean(rows, axis=0, dtype=np.float64).astype(np.float32)
  return np.broadcast_to(mean, [count, *mean.shape])
