"""Matches the values of a weight source to the variables of a net."""

import math
from collections.abc import Collection
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from terngrad import errors
from terngrad.checkpoint import sources
from terngrad.step import replicas


class MatchedWeights(NamedTuple):
  """Values that a source holds for a net.

  Attributes:
    values: the value for each of our names.
    missing: names that the source lacks.
    notes: lines about values whose shape was adapted.
  """

  values: dict[str, np.ndarray]
  missing: list[str]
  notes: list[str]


def find(
  source: sources.WeightSource,
  wanted: Mapping[str, tf.Variable],
  heads: Collection[str],
) -> MatchedWeights:
  """Reads the values of variables, or their averages if the value is missing.

  Args:
    source: the weight source.
    wanted: variables by our names.
    heads: names of the classifiers' variables. If the numbers of classes differ
      by one, the additional class is taken to be the background, class 0. It is
      dropped from the source, or keeps the net's initial value.

  Raises:
    errors.CheckpointError: a value has an incompatible shape.
  """
  stored_names, missing = {}, []
  for name, variable in wanted.items():
    names = (name, replicas.average_name(name))
    key = next((n for n in names if n in source.shapes), None)
    if key is None:
      missing.append(name)
      continue
    expected, received = variable.shape.as_list(), source.shapes[key]
    if not _fits(received, expected, name in heads):
      raise errors.CheckpointError(
        f'{source.path}: expected {name} of shape {expected}, received '
        f'{received}. Leave it out with --checkpoint_exclude_scopes='
        f'{name.split("/")[0]}, or the logits with --fine_tune; else give the '
        'flags it was trained with, or another file.'
      )
    stored_names[name] = key
  values, notes = {}, []
  for name, key in stored_names.items():
    values[name], note = _adapt(source.read(key), wanted[name])
    notes += [f'{name}: {note}'] if note else []
  return MatchedWeights(values, missing, notes)


def _fits(received: list[int], expected: list[int], is_head: bool) -> bool:
  if not received or not expected:
    return received == expected
  # A convolution over the whole image has the same weights as a dense layer.
  same_inputs = received[:-1] == expected[:-1] or (
    len(received) != len(expected)
    and math.prod(received[:-1]) == math.prod(expected[:-1])
  )
  more = received[-1] - expected[-1]
  return same_inputs and (more == 0 or (is_head and abs(more) == 1))


def _adapt(value: np.ndarray, variable: tf.Variable) -> tuple[np.ndarray, str]:
  """Returns (the value in the variable's shape, how it was adapted or '')."""
  expected = variable.shape.as_list()
  if not expected:
    return value, ''
  value = np.reshape(value, [*expected[:-1], np.shape(value)[-1]])
  more = value.shape[-1] - expected[-1]
  if more == 1:
    return value[..., 1:], 'class 0, the background, was dropped'
  if more == -1:
    first = variable.numpy()[..., :1]
    return (
      np.concatenate([first, value], axis=-1),
      'class 0, the background, was added with its initial value',
    )
  return value, ''
