"""Which codec each variable gets, decided once when the model is built."""

from typing import NamedTuple


class VariableSpec(NamedTuple):
  """What a policy may know of a trainable variable.

  Attributes:
    name: its path in the model, 'conv1/kernel'.
    shape: tuple of int.
    is_logits: True for the weights and biases of the final classifier.
  """

  name: str
  shape: tuple
  is_logits: bool = False

  @property
  def num_elements(self):
    """The product of the shape."""
    size = 1
    for extent in self.shape:
      size *= extent
    return size


class Variables(NamedTuple):
  """Of which variables of a model gradients are.

  Attributes:
    places: tuple of int, their places among all variables; states are known by
      them.
    specs: tuple of `VariableSpec`.
    plain: frozenset of names of those that travel as float32, whatever the
      codec.
  """

  places: tuple
  specs: tuple
  plain: frozenset = frozenset()

  def only(self, indices):
    """Some of them."""
    return self._replace(
      places=tuple(self.places[i] for i in indices),
      specs=tuple(self.specs[i] for i in indices),
    )


def smaller_than(num_elements):
  """A predicate: the variable has fewer than `num_elements` elements."""
  return lambda spec: spec.num_elements < num_elements


def is_logits(spec):
  """A predicate: the variable belongs to the final classifier."""
  return spec.is_logits


def always(spec):
  """A predicate: any variable."""
  del spec
  return True


def policy(rules, specs):
  """Gives every variable the codec of the first rule that holds for it.

  Args:
    rules: sequence of (predicate on `VariableSpec`, codec), most special
      first.
    specs: the variables in the order of the gradients.

  Returns:
    A tuple of codecs, one a variable.

  Raises:
    ValueError: no rule holds for a variable, which is named.
  """
  return tuple(_first(rules, spec) for spec in specs)


def _first(rules, spec):
  for holds, codec in rules:
    if holds(spec):
      return codec
  raise ValueError(
    f'policy: expected a rule that holds for every variable, received none for '
    f'{spec.name} {spec.shape}. End the rules with (always, codec).'
  )
