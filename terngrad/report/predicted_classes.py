"""Predicted classes with names and confidences."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy import typing as npt


class PredictedClass(NamedTuple):
  """A predicted class.

  Attributes:
    label: label of the class.
    name: name of the class, or its label as text if it has no name.
    confidence: predicted probability, in [0, 1].
  """

  label: int
  name: str
  confidence: float


def name_of(label: int, names: Mapping[int, str] | None) -> str:
  """Returns the name of a label, or the label as text if it has no name."""
  return (names or {}).get(int(label), str(int(label)))


def top_classes(
  probabilities: npt.ArrayLike, names: Mapping[int, str] | None, count: int
) -> list[PredictedClass]:
  """Returns the classes with the highest probabilities.

  Args:
    probabilities: float [classes].
    names: names of the labels, if known.
    count: number of classes to return.

  Returns:
    Classes by descending probability; on ties, the lower label first.
  """
  probabilities = np.asarray(probabilities)
  order = np.argsort(-probabilities, kind='stable')[:count]
  return [
    PredictedClass(int(i), name_of(i, names), float(probabilities[i]))
    for i in order
  ]
