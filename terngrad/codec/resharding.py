"""Converts the workers' states when the number of workers changes."""

import numpy as np

from terngrad.codec import method as methods


def convert_state(
  state: methods.State, rows: np.ndarray, count: int, first: int = 0
) -> np.ndarray:
  """Returns the states for another number of workers.

  Args:
    state: the declaration; `resharding` selects the conversion.
    rows: float32 [old number of workers, *state.shape], or some of these rows.
      Ranges had another shape for another number of workers.
    count: new number of workers.
    first: number of the old worker whose row is the first, for ranges.

  Returns:
    float32 [count, *state.shape].
  """
  if state.resharding == methods.RANGES:
    whole = np.zeros([count, *state.shape], np.float32)
    begin = first * (rows.size // len(rows))
    known = rows.reshape(-1)[: max(whole.size - begin, 0)]
    whole.reshape(-1)[begin : begin + known.size] = known
    return whole
  if len(rows) == count:
    return rows
  mean = np.mean(rows, axis=0, dtype=np.float64).astype(np.float32)
  return np.broadcast_to(mean, [count, *mean.shape])
