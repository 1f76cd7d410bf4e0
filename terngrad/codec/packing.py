"""Fixed-length packings of ternary codes into 32-bit words.

Element `p * w + j` of a gradient of `w` words stands at place `p` of word `j`
(see `contract`). Words are int32 because TensorFlow's collectives carry no
narrower integers; digits are taken on the uint32 view, since 3**20 > 2**31.
"""

import tensorflow as tf

from terngrad.codec import contract


def two_bit():
  """16 codes a word, 2 bits each: 0 for -1, 1 for 0, 2 for +1.

  The digits of the 2017 code's encoder, in words instead of bytes.

  Returns:
    A `contract.Packing` of codes in {-1, 0, 1}.
  """

  def pack(planes):
    word = _digit(planes[0])
    for place, plane in enumerate(planes[1:], start=1):
      shift = tf.constant(2 * place, tf.uint32)
      word = tf.bitwise.bitwise_or(
        word, tf.bitwise.left_shift(_digit(plane), shift)
      )
    return tf.bitcast(word, tf.int32)

  def unpack(words):
    word = tf.bitcast(words, tf.uint32)
    mask = tf.constant(3, tf.uint32)
    digits = (
      tf.bitwise.right_shift(word, tf.constant(2 * place, tf.uint32))
      for place in range(16)
    )
    return [_code(tf.bitwise.bitwise_and(digit, mask)) for digit in digits]

  return contract.Packing(
    name='two_bit',
    elements_per_word=16,
    pack=pack,
    unpack=unpack,
    domain=(contract.CODES, contract.WORDS),
    levels=1,
  )


def base3():
  """20 codes a word, 1.6 bits each: place p weighs 3**p, digit = code + 1.

  Returns:
    A `contract.Packing` of codes in {-1, 0, 1}.
  """
  three = 3

  def pack(planes):
    word = _digit(planes[-1])
    for plane in reversed(planes[:-1]):
      word = word * tf.constant(three, tf.uint32) + _digit(plane)
    return tf.bitcast(word, tf.int32)

  def unpack(words):
    word = tf.bitcast(words, tf.uint32)
    codes = []
    for place in range(20):
      # Each place divides the word itself: XLA then computes the places side
      # by side instead of keeping a chain of quotients.
      quotient = word // tf.constant(three**place, tf.uint32)
      above = quotient // tf.constant(three, tf.uint32)
      codes.append(_code(quotient - above * tf.constant(three, tf.uint32)))
    return codes

  return contract.Packing(
    name='base3',
    elements_per_word=20,
    pack=pack,
    unpack=unpack,
    domain=(contract.CODES, contract.WORDS),
    levels=1,
  )


PACKINGS = {'base3': base3, 'two_bit': two_bit}


def _digit(codes):
  """int32 codes in {-1, 0, 1} as uint32 digits in {0, 1, 2}."""
  return tf.bitcast(codes + 1, tf.uint32)


def _code(digits):
  """uint32 digits as int32 codes."""
  return tf.bitcast(digits, tf.int32) - 1
