"""Converts the workers' states when the number of workers changes."""

import numpy as np

from terngrad.codec import method as methods


def convert_state(
  state: methods.State, rows: np.ndarray, count: int
) -> np.ndarray:
  """Returns the states for another number of workers.

  Args:
    state: the declaration; `resharding` selects the conversion.
    rows: float32 [old number of workers, *state.shape].
    count: new number of workers.

  Returns:
    float32 [count, *state.shape].
  """
  if len(rows) == count:
    return rows
  if state.resharding == methods.RANGES:
    whole = np.zeros([count, *state.shape], np.float32)
    size = min(whole.size, rows.size)
    whole.reshape(-1)[:size] = rows.reshape(-1)[:size]
    return whole
  mean = np.mean(rows, axis=0, dtype=np.float64).astype(np.float32)
  return np.broadcast_to(mean, [count, *mean.shape])
