"""What a trained net says of images, in words."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy import typing as npt


class Guess(NamedTuple):
  """A class that a net believes in.

  Attributes:
    label: of the class.
    name: of the class, or its label as text where it has none.
    confidence: in [0, 1].
  """

  label: int
  name: str
  confidence: float


def name_of(label: int, names: Mapping[int, str] | None) -> str:
  """The name of a label, by the names of all, if they are known."""
  return (names or {}).get(int(label), str(int(label)))


def best(
  probabilities: npt.ArrayLike, names: Mapping[int, str] | None, count: int
) -> list[Guess]:
  """The classes that a net believes in most.

  Args:
    probabilities: float [classes].
    names: of the labels, if they are known.
    count: how many.

  Returns:
    The likeliest first; the lower label first where two are as likely.
  """
  probabilities = np.asarray(probabilities)
  order = np.argsort(-probabilities, kind='stable')[:count]
  return [
    Guess(int(i), name_of(i, names), float(probabilities[i])) for i in order
  ]
