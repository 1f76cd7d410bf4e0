"""Names of codecs, in the syntax of `--codec`, from those of checkpoints.

A checkpoint stores a code as the chain of its stages, such as
`clip_by_stddev(2.5) > ternarize > base3`, which is `ternary`.
"""

import contextlib
import functools
import inspect
import re
from collections.abc import Iterator

from slim import spelling
from terngrad.codec.methods import registry

# Stored prefixes of wrappers, and what --codec has instead.
_WRAPPERS = (
  (
    r'adam\(1000, 0\.9, 0\.999, 1e-08\) > error feedback > bidirectional > ',
    'one_bit_adam+',
  ),
  (
    r'adam\((.+?), (.+?), (.+?), (.+?)\) > error feedback > bidirectional > ',
    r'one_bit_adam:warm_up=\1,beta_1=\2,beta_2=\3,epsilon=\4+',
  ),
  (r'error feedback > ', 'error_feedback+'),
  (r'error feedback\((.+?)\) > ', r'error_feedback:decay=\1+'),
  (r'momentum\(0\.9\) > ', 'momentum+'),
  (r'momentum\((.+?)\) > ', r'momentum:momentum=\1+'),
  (r'ef21 > ', 'ef21+'),
  (r'ef21 sgdm\(0\.125\) > ', 'ef21_sgdm+'),
  (r'ef21 sgdm\((.+?)\) > ', r'ef21_sgdm:eta=\1+'),
  (r'diana > ', 'diana+'),
  (r'diana\((.+?)\) > ', r'diana:alpha=\1+'),
  (r'bidirectional > ', 'bidirectional+'),
  (r'bidirectional\(forgets\) > ', 'bidirectional:residual=0+'),
)
_NUMBER = re.compile(r'(?<=[(\[, ])\d[\d.e+-]*')


def codec_name(stored: str, workers: int) -> str:
  """Returns a codec in the syntax of `--codec`.

  Args:
    stored: name of the method, as in a checkpoint.
    workers: number of workers of the run.

  Returns:
    A text whose method has the stored name, or `stored` if none is found.
  """
  wrappers, rest = '', stored
  while True:
    for pattern, text in _WRAPPERS:
      if match := re.match(pattern, rest):
        wrappers, rest = wrappers + match.expand(text), rest[match.end() :]
        break
    else:
      break
  for text in _candidates(rest, workers):
    with contextlib.suppress(ValueError):
      if registry.method(text, workers).name == rest:
        return wrappers + text
  return stored


def _candidates(stored: str, workers: int) -> Iterator[str]:
  """Yields texts whose methods may have a name."""
  defaults = _names(workers)
  yield from (text for text, name in defaults.items() if name == stored)
  for text, name in defaults.items():
    if _NUMBER.sub('#', name) != _NUMBER.sub('#', stored):
      continue
    before, now = _NUMBER.findall(name), _NUMBER.findall(stored)
    changed = {a: b for a, b in zip(before, now, strict=True) if a != b}
    options = [
      f'{option}={value}'
      for default, value in changed.items()
      for option in _options(text, default)
    ]
    yield from (_join(text, option) for option in options)
    yield _join(text, ','.join(options))


@functools.cache
def _names(workers: int) -> dict[str, str]:
  """Returns the names of the registered methods, by their texts."""
  names = {}
  texts = [
    *registry.CODECS,
    *registry.METHODS,
    *registry.list_kinds(),
    *registry.ALIASES,
  ]
  for text in dict.fromkeys(texts):
    # Some need more workers than there are.
    with contextlib.suppress(ValueError):
      names[text] = registry.method(text, workers).name
  return names


def _options(text: str, default: str) -> list[str]:
  """Lists the options of a method whose default is a number."""
  makers = registry.CODECS | registry.METHODS
  name, _ = spelling.split(text)
  if name not in makers:
    return []
  maker = spelling.resolve(makers[name])
  return [
    name
    for name, parameter in inspect.signature(maker).parameters.items()
    if isinstance(parameter.default, int | float)
    and f'{parameter.default:g}' == default
  ]


def _join(text: str, options: str) -> str:
  return f'{text}{"," if ":" in text else ":"}{options}'
