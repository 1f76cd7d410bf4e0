"""Layer names of Inception v3 in TensorFlow 1 programs.

Google's first program, whose checkpoint the 2017 README fine-tunes, numbers the
convolutions of a branch: `mixed_35x35x256a/branch5x5/Conv_1`. TF-Slim names
each convolution by its position and kernel size, as this package does. A few of
TF-Slim's names differ from ours.
"""

_BLOCKS = {
  'mixed_35x35x256a': '5b',
  'mixed_35x35x288a': '5c',
  'mixed_35x35x288b': '5d',
  'mixed_17x17x768a': '6a',
  'mixed_17x17x768b': '6b',
  'mixed_17x17x768c': '6c',
  'mixed_17x17x768d': '6d',
  'mixed_17x17x768e': '6e',
  'mixed_17x17x1280a': '7a',
  'mixed_8x8x2048a': '7b',
  'mixed_8x8x2048b': '7c',
}
# For each kind of block: the old branch names, in order, and their layers.
_BRANCHES_5 = {
  'branch1x1': ('0a_1x1',),
  'branch5x5': ('0a_1x1', '0b_5x5'),
  'branch3x3dbl': ('0a_1x1', '0b_3x3', '0c_3x3'),
  'branch_pool': ('0b_1x1',),
}
_BRANCHES_6 = {
  'branch1x1': ('0a_1x1',),
  'branch7x7': ('0a_1x1', '0b_1x7', '0c_7x1'),
  'branch7x7dbl': ('0a_1x1', '0b_7x1', '0c_1x7', '0d_7x1', '0e_1x7'),
  'branch_pool': ('0b_1x1',),
}
_BRANCHES_7 = {
  'branch1x1': ('0a_1x1',),
  'branch3x3': ('0a_1x1', '0b_1x3', '0c_3x1'),
  'branch3x3dbl': ('0a_1x1', '0b_3x3', '0c_1x3', '0d_3x1'),
  'branch_pool': ('0b_1x1',),
}
_BRANCHES = {
  **dict.fromkeys(('5b', '5c', '5d'), _BRANCHES_5),
  '6a': {
    'branch3x3': ('1a_3x3',),
    'branch3x3dbl': ('0a_1x1', '0b_3x3', '1a_3x3'),
  },
  **dict.fromkeys(('6b', '6c', '6d', '6e'), _BRANCHES_6),
  '7a': {
    'branch3x3': ('0a_1x1', '1a_3x3'),
    'branch7x7x3': ('0a_1x1', '0b_1x7', '0c_7x1', '1a_3x3'),
  },
  **dict.fromkeys(('7b', '7c'), _BRANCHES_7),
}

# Maps names of the first program (lower case, scopes joined by '_') to ours.
OLD = {
  'conv0': 'conv2d_1a_3x3',
  'conv1': 'conv2d_2a_3x3',
  'conv2': 'conv2d_2b_3x3',
  'conv3': 'conv2d_3b_1x1',
  'conv4': 'conv2d_4a_3x3',
  'aux_logits_proj': 'aux_conv2d_1b_1x1',
  'aux_logits_conv': 'aux_conv2d_2a_5x5',
  'aux_logits_fc': 'aux_logits',
} | {
  f'{old}_{branch}_conv{f"_{i}" if i else ""}': (
    f'mixed_{block}_branch_{number}_conv2d_{layer}'
  )
  for old, block in _BLOCKS.items()
  for number, (branch, layers) in enumerate(_BRANCHES[block].items())
  for i, layer in enumerate(layers)
}

# Maps TF-Slim's names to ours, where they differ.
SLIM = {
  'mixed_5c_branch_1_conv2d_0b_1x1': 'mixed_5c_branch_1_conv2d_0a_1x1',
  'mixed_5c_branch_1_conv_1_0c_5x5': 'mixed_5c_branch_1_conv2d_0b_5x5',
  'mixed_6a_branch_0_conv2d_1a_1x1': 'mixed_6a_branch_0_conv2d_1a_3x3',
  'mixed_6a_branch_1_conv2d_1a_1x1': 'mixed_6a_branch_1_conv2d_1a_3x3',
  'mixed_7b_branch_1_conv2d_0b_3x1': 'mixed_7b_branch_1_conv2d_0c_3x1',
}
