"""Command lines of 2017, word by word, with X for bazel-bin/inception/X."""

import shlex

import pytest

from terngrad.config import options
from tests.cli import starters

# From the README of 2017, and what its scripts started (their variables filled
# in). The values that matter stand beside each.
LINES = [
  (
    """mnist_train --optimizer momentum --initial_learning_rate 0.01
    --learning_rate_decay_type polynomial --max_steps 10000 --net lenet
    --image_size 28 --num_gpus 2 --batch_size 64 --train_dir /t
    --data_dir /d""",
    {'learning_rate_decay_type': 'polynomial', 'num_workers': 2},
  ),
  (
    """cifar10_train --optimizer adam --initial_learning_rate 0.0002
    --num_epochs_per_decay 256 --max_steps 200000 --net cifar10_alexnet
    --image_size 24 --num_gpus 2 --batch_size 128
    --train_dir /t --data_dir /d""",
    {'net': 'cifar10_alexnet', 'max_steps': 200000, 'num_workers': 2},
  ),
  (
    """imagenet_train --optimizer momentum --net alexnet --image_size 224
    --num_gpus 2 --batch_size 256 --train_dir /t --data_dir /d""",
    {'dataset_name': 'imagenet', 'batch_size': 256},
  ),
  (
    """flowers_train --train_dir=/t --data_dir=/d
    --pretrained_model_checkpoint_path=/c/model.ckpt-157585 --fine_tune=True
    --initial_learning_rate=0.001 --input_queue_memory_factor=1""",
    {'fine_tune': True, 'input_queue_memory_factor': 1},
  ),
  (
    """flowers_eval --eval_dir=/e --data_dir=/d --subset=validation
    --num_examples=500 --checkpoint_dir=/t --input_queue_memory_factor=1
    --run_once""",
    {'run_once': True, 'num_examples': 500},
  ),
  (
    """imagenet_eval --batch_size 50 --checkpoint_dir=/t --eval_dir=/e
    --data_dir /d --net alexnet --image_size 224 --eval_interval_secs 900
    --device /gpu:0 --restore_avg_var True --tower 0 --subset validation""",
    {'restore_avg_var': True, 'tower': 0},
  ),
  (
    """imagenet_eval --restore_avg_var False --run_once False
    --checkpoint_dir /t --eval_dir /e""",
    {'restore_avg_var': False, 'run_once': False},
  ),
  (
    """mnist_eval --eval_interval_secs 1 --device /gpu:0 --restore_avg_var True
    --checkpoint_dir /t --eval_dir /e --data_dir /d --subset test
    --net lenet --image_size 28 --batch_size 100 --max_steps 10000
    --tower 0""",
    {'subset': 'test', 'batch_size': 100},
  ),
  (
    """mnist_train --seed 123 --initial_learning_rate 0.01
    --learning_rate_decay_type polynomial --max_steps 10000 --optimizer
    momentum --momentum 0.9 --net lenet --image_size 28 --num_gpus 2
    --num_nodes 4 --batch_size 64 --grad_bits 32 --clip_factor 0.0
    --floating_grad_epoch 0 --weight_decay 0.0005 --size_to_binarize 1
    --save_iter 200 --quantize_logits True --train_dir /t --data_dir /d
    --use_encoding False --benchmark_mode False""",
    {'quantize_logits': True, 'use_encoding': False, 'num_workers': 4},
  ),
  (
    """cifar10_train --seed 123 --optimizer adam --initial_learning_rate 0.0002
    --num_epochs_per_decay 200 --learning_rate_decay_type fixed --max_steps
    300000 --net cifar10_alexnet --image_size 24 --num_gpus 2 --num_nodes 2
    --batch_size 128 --weight_decay 0.004 --save_iter 2000 --clip_factor 2.5
    --grad_bits 1 --size_to_binarize 1 --quantize_logits True --save_tower
    -1 --train_dir /t --data_dir /d --floating_grad_epoch 0""",
    {'save_tower': -1, 'grad_bits': 1, 'weight_decay': 0.004},
  ),
  (
    """cifar10_eval --batch_size 50 --subset test --eval_interval_secs 10
    --net cifar10_alexnet --image_size 24 --tower 0 --restore_avg_var True
    --checkpoint_dir /t --eval_dir /e --data_dir /d --max_steps 300000""",
    {'eval_interval_secs': 10},
  ),
  (
    """imagenet_train --seed 123 --optimizer momentum --momentum 0.9
    --initial_learning_rate 0.04 --learning_rate_decay_type exponential
    --num_epochs_per_decay 20 --learning_rate_decay_factor 0.1 --net alexnet
    --image_size 224 --num_gpus 8 --batch_size 1024 --max_steps 92500
    --dropout_keep_prob 0.8 --weight_decay 0.0005 --grad_bits 1
    --clip_factor 2.5 --size_to_binarize 9217 --save_iter 5000
    --num_preprocess_threads 4 --num_readers 4 --train_dir /t
    --data_dir /d""",
    {'dropout_keep_prob': 0.8, 'size_to_binarize': 9217, 'num_workers': 8},
  ),
  (
    """imagenet_train --seed 123 --net googlenet --image_size 224
    --learning_rate_decay_type polynomial --initial_learning_rate 0.04
    --num_gpus 2 --num_nodes 2 --batch_size 128 --max_steps 600000
    --weight_decay 4e-5 --dropout_keep_prob 0.8 --log_device_placement False
    --train_dir /t --data_dir /d""",
    {'weight_decay': 4e-5, 'log_device_placement': False},
  ),
  (
    """imagenet_train --net vgg_a --num_gpus 4 --initial_learning_rate 0.01
    --batch_size 256 --dropout_keep_prob 0.5 --max_steps 370000
    --fine_tune False --pretrained_model_checkpoint_path ''
    --train_dir /t --data_dir /d""",
    {'fine_tune': False, 'pretrained_model_checkpoint_path': ''},
  ),
]


@pytest.mark.parametrize(
  ('line', 'expected'), LINES, ids=[' '.join(x[0].split()[:4]) for x in LINES]
)
def test_command_line_of_2017_is_read(line, expected):
  name, *words = shlex.split(line)
  config = starters.parse(f'terngrad.bin.{name}', words)
  said = options.by_name(config)
  if name.endswith('_train'):
    said['num_workers'] = config.num_workers
  assert {field: said[field] for field in expected} == expected
  folder = said['train_dir' if name.endswith('_train') else 'eval_dir']
  assert folder in ('/t', '/e')
