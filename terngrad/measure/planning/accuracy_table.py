"""Accuracy of codes, written by experiments/plan_accuracy/make_table.py.

By sweep and code: the difference to float32 in percentage points, half the
width of its 95 % interval (None for one seed), and the number of seeds.
"""

TABLE: dict[str, dict[str, tuple[float, float | None, int]]] = {
  'lenet_codecs': {
    'identity': (0.0, 0.0, 3),
    'fp16': (0.05, 0.06, 3),
    'bf16': (0.01, 0.14, 3),
    'fp8': (0.05, 0.08, 3),
    'fp8:kind=e5m2': (-0.02, 0.1, 3),
    'ternary': (-0.11, 0.23, 3),
    'error_feedback+ternary': (0.0, 0.09, 3),
    'ternary:dither=stratified': (-0.1, 0.08, 3),
    'asymmetric': (-0.07, 0.09, 3),
    'qsgd': (0.03, 0.08, 3),
    'qsgd:levels=127,norm=l2': (0.05, 0.05, 3),
    'minmax:bits=1': (-0.17, 0.3, 3),
    'minmax:bits=2': (0.11, 0.13, 3),
    'minmax:bits=4': (0.06, 0.04, 3),
    'minmax:bits=8': (0.05, 0.1, 3),
    'int8': (0.05, 0.07, 3),
    'natural': (0.01, 0.04, 3),
    'ef_signsgd': (0.04, 0.08, 3),
    'signsgd': (-1.25, 0.16, 3),
    'error_feedback+signsgd': (0.17, 0.11, 3),
    'error_feedback+one_bit': (0.01, 0.12, 3),
    'error_feedback+topk:ratio=0.01': (-0.04, 0.16, 3),
    'error_feedback+randomk:ratio=0.05': (-0.51, 0.29, 3),
    'error_feedback+threshold:above=0.01,capacity=0.02': (0.03, 0.0, 3),
    'dgc:ratio=0.01': (-0.2, 0.07, 3),
    'error_feedback+stc:ratio=0.01': (-0.02, 0.19, 3),
    'error_feedback+three_lc': (0.04, 0.17, 3),
    'error_feedback+powersgd:rank=1': (0.0, 0.15, 3),
    'error_feedback+powersgd:rank=4': (0.02, 0.05, 3),
    'drive': (0.05, 0.11, 3),
    'eden:bits=2': (0.04, 0.04, 3),
    'eden3': (0.01, 0.09, 3),
    'thc': (0.06, 0.05, 3),
  },
  'cifar10_causes': {
    'identity': (0.0, 0.0, 3),
    'ternary': (-2.73, 0.91, 3),
    'error_feedback+ternary': (-28.71, None, 1),
    'error_feedback+ternary:clip_factor=1': (-0.94, None, 1),
    'error_feedback+stc:ratio=0.01': (-0.99, None, 1),
    'error_feedback+powersgd:rank=2': (-0.79, None, 1),
    'eden3': (-0.65, 0.88, 3),
    'ternary:clip_factor=1': (-2.69, 0.54, 3),
    'ternary:dither=stratified': (-2.37, 0.5, 3),
  },
}
