"""What a trained net says of images, in words."""

from typing import NamedTuple

import numpy as np


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


def name_of(label, names):
  """The name of a label.

  Args:
    label: int.
    names: dict of label to name, or None.
  """
  return (names or {}).get(int(label), str(int(label)))


def best(probabilities, names, count):
  """The classes that a net believes in most.

  Args:
    probabilities: float [classes].
    names: dict of label to name, or None.
    count: how many.

  Returns:
    List of `Guess`, the likeliest first; the lower label first where two are
    as likely.
  """
  probabilities = np.asarray(probabilities)
  order = np.argsort(-probabilities, kind='stable')[:count]
  return [
    Guess(int(i), name_of(i, names), float(probabilities[i])) for i in order
  ]
