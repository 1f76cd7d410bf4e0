"""Times of codes, relative to a copy in the memory of the device."""

from terngrad.measure import device_codec_table
from terngrad.measure.gpu import figures
from terngrad.measure.gpu import parts

# In order of importance: the time limit may end the list early.
CODES = (
  'ternary',
  'identity',
  'sign',
  'int8',
  'qsgd',
  'topk',
  'stc',
  'eden3',
)
_WORKS = ('probe', 'encode', 'decode', 'decode_sum')
_ROUNDS = 3
_SMALL_SIZE = 4096


def check(
  settings: parts.CheckSettings,
  report: figures.Report,
  codes: tuple[str, ...] = CODES,
) -> None:
  """Times all codes; reports each as soon as it is measured."""
  size = _SMALL_SIZE if settings.small else int(device_codec_table.SIZES[0])
  for text in codes:
    (row,) = device_codec_table.measure(
      settings.device, text, f'{size}', [(size,)], _ROUNDS, works=_WORKS
    )
    for work in _WORKS:
      if (key := f'{work}_to_copy') in row:
        unit = 'copies of 8' if work == 'decode_sum' else 'copies'
        report(figures.Figure(f'{text}, {work}', row[key], unit))
