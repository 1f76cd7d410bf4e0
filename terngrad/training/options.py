"""What the parts of a run need of its configuration."""


def pick(kind, config):
  """Takes from a configuration what a part of the run needs.

  Args:
    kind: a NamedTuple class; each field has the name of an option, or of a
      property, of the configuration.
    config: the configuration.

  Returns:
    A `kind`.
  """
  return kind(**{name: getattr(config, name) for name in kind._fields})
