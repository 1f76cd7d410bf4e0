"""Changes of valid inputs, as damage and malice make them."""

import re
import struct

# Where lengths, sizes and indices go wrong.
_NUMBERS = (
  *(0, 1, 2, 7, 8, 15, 16, 31, 32, 63, 64, 127, 128, 255, 256, 511, 512, 4095),
  *(2**15 - 1, 2**15, 2**16 - 1, 2**16, 2**24, 2**31 - 1, 2**31, 2**32 - 1),
  *(2**32, 2**53, 2**63 - 1, 2**63, 2**64 - 1),
)
_WRITTEN = (
  *(b'-1', b'0', b'1', b'01', b'1.5', b'-0.0', b'1e9', b'1e400', b'-1e400'),
  *(b'nan', b'inf', b'2147483648', b'9223372036854775808', b'9' * 30),
  *(b'9' * 5000, b'1_000', '٣'.encode(), '²'.encode(), b'0x10', b''),
)
_PIECES = (
  *(b'\0', b'\n', b'\r\n', b'\t', b' ', b'"', b"'", b'\\', b'/', b'../', b'%'),
  *(b',', b';', b':', b'=', b'-', b'#', b'[', b']', b'{', b'}', b'[[[[', b'&'),
  *(b'\xff\xfe', b'\xef\xbb\xbf', b'\xed\xa0\x80', b'\\ud800', b'\\u0000'),
  *('é'.encode(), '\u2028'.encode(), '\x85'.encode(), b'*', b'[' * 3000),
)
MOST_BYTES = 1 << 16


def mutated(random, content, others, words=()):
  """An input with one to five changes.

  Args:
    random: `random.Random`.
    content: bytes.
    others: list of bytes, inputs to splice with.
    words: bytes that mean something in this kind of input.

  Returns:
    Bytes, at most as many as `MOST_BYTES` or `content` has.
  """
  most = max(MOST_BYTES, len(content))
  for _ in range(random.choice((1, 1, 1, 2, 2, 3, 5))):
    change = random.choice(_CHANGES)
    content = change(random, content, others, words)[:most]
  return content


def _place(random, content, width=0):
  return random.randrange(max(1, len(content) - width + 1))


def _span(random, content):
  begin = _place(random, content)
  return begin, min(len(content), begin + random.choice((1, 2, 4, 16, 64, 999)))


def _flip(random, content, others, words):
  del others, words
  changed = bytearray(content)
  for _ in range(random.choice((1, 1, 1, 2, 8))):
    if changed:
      changed[_place(random, content, 1)] ^= 1 << random.randrange(8)
  return bytes(changed)


def _byte(random, content, others, words):
  del others, words
  changed = bytearray(content)
  if changed:
    changed[_place(random, content, 1)] = random.choice(
      (0, 1, 0x7F, 0x80, 0xFF, random.randrange(256))
    )
  return bytes(changed)


def _number(random, content, others, words):
  """A number of fixed width, as a length field has it."""
  del others, words
  width, kind = random.choice(((1, 'B'), (2, 'H'), (4, 'I'), (8, 'Q')))
  order = random.choice('<>')
  number = random.choice(_NUMBERS) % 2 ** (8 * width)
  at = _place(random, content, width)
  if random.randrange(2) and len(content) >= width:
    (there,) = struct.unpack_from(order + kind, content, at)
    number = (there + random.choice((-1, 1, -2, 2, 8, 512))) % 2 ** (8 * width)
  return (
    content[:at] + struct.pack(order + kind, number) + content[at + width :]
  )


def _written(random, content, others, words):
  """A number as text writes it."""
  del others, words
  found = [m.span() for m in re.finditer(rb'-?[0-9.]+', content[:MOST_BYTES])]
  if not found:
    return content
  begin, end = random.choice(found)
  return content[:begin] + random.choice(_WRITTEN) + content[end:]


def _cut(random, content, others, words):
  del others, words
  return content[: _place(random, content)]


def _drop(random, content, others, words):
  del others, words
  begin, end = _span(random, content)
  return content[:begin] + content[end:]


def _repeat(random, content, others, words):
  del others, words
  begin, end = _span(random, content)
  times = random.choice((1, 1, 2, 50))
  return content[:end] + content[begin:end] * times + content[end:]


def _move(random, content, others, words):
  del others, words
  begin, end = _span(random, content)
  rest = content[:begin] + content[end:]
  at = _place(random, rest)
  return rest[:at] + content[begin:end] + rest[at:]


def _splice(random, content, others, words):
  del words
  other = random.choice(others)
  if random.randrange(2):
    return content[: _place(random, content)] + other[_place(random, other) :]
  begin, end = _span(random, other)
  at = _place(random, content)
  return content[:at] + other[begin:end] + content[at:]


def _word(random, content, others, words):
  del others
  word = random.choice((*words, *words, *_PIECES))
  begin, end = _span(random, content)
  if random.randrange(2):
    end = begin
  return content[:begin] + word + content[end:]


def _noise(random, content, others, words):
  del others, words
  begin, end = _span(random, content)
  return content[:begin] + random.randbytes(end - begin) + content[end:]


_CHANGES = (
  *(_flip, _byte, _number, _number, _written, _written, _cut, _drop),
  *(_repeat, _move, _splice, _splice, _word, _word, _noise),
)
