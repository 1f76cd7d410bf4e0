"""Functions that TensorFlow traces, and functions that XLA compiles.

They do not use AutoGraph, which rewrites every Python function that is called
while it traces, and takes longer than tracing. So loops and conditions on
tensors are written with `tf.while_loop` and `tf.cond`, except in functions that
users pass.
"""

import functools

import tensorflow as tf

# Each takes a function, or is a decorator with options of `tf.function`.
function = functools.partial(tf.function, autograph=False)
compiled = functools.partial(function, jit_compile=True)
# For functions that users pass: with AutoGraph.
rewritten = tf.function
