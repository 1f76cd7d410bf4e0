"""Names of classes, as lines of `labels.txt`."""

import unicodedata


def why_no_line(name: str) -> str:
  """Why a name cannot be a line of the file; '' where it can.

  Args:
    name: of a class, as Python has the names of files.
  """
  # What is not UTF-8 are surrogates, which no file of text can hold.
  if name.encode(errors='replace').decode() != name:
    return 'it is not UTF-8'
  if name.splitlines() not in ([name], []):
    return 'it has a line end'
  control = [c for c in name if unicodedata.category(c) == 'Cc' and c != '\t']
  if control:
    return f'it has the control character {control[0]!r}'
  if name != name.rstrip():
    return 'it ends with a space, which readers of that file cut off'
  return ''
