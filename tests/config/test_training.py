import contextlib
import re

import pytest

from terngrad import errors
from terngrad.cli import flags
from terngrad.codec.methods import registry
from terngrad.config import options as options_lib
from terngrad.config import training as configs


def config(**options):
  return options_lib.build(configs.TrainConfig, net='lenet', **options)


@pytest.mark.parametrize(
  ('options', 'expected'),
  [
    ({}, 'float32_words'),
    ({'grad_bits': 1}, 'ternarize > base3'),
    ({'grad_bits': 4}, 'minmax(4, 512)'),
    (
      {'grad_bits': 1, 'clip_factor': 2.5},
      'clip_by_stddev(2.5) > ternarize > base3',
    ),
    (
      {'grad_bits': 1, 'clip_factor': 2.5, 'scaler_rule': 'stddev'},
      'ternarize(stddev, 2.5) > base3',
    ),
    ({'grad_bits': 1, 'packing': 'two_bit'}, 'ternarize > two_bit'),
    (
      {'grad_bits': 1, 'packing': 'radix', 'num_nodes': 8},
      'ternarize > radix(8)',
    ),
    ({'codec': 'fp16'}, 'float16_words'),
    ({'codec': 'ternary'}, 'clip_by_stddev(2.5) > ternarize > base3'),
    (
      {'codec': 'ternary:clip_factor=3', 'packing': 'two_bit'},
      'clip_by_stddev(3) > ternarize > two_bit',
    ),
    (
      {'codec': 'ternary:clip_factor=2', 'clip_factor': 2.0},
      'clip_by_stddev(2) > ternarize > base3',
    ),
    (
      {'codec': 'ternary', 'grad_bits': 1, 'clip_factor': 2.0},
      'clip_by_stddev(2) > ternarize > base3',
    ),
    ({'grad_bits': 1, 'packing': 'huffman243'}, 'ternarize > huffman243'),
    (
      {'codec': 'ternary:packing=radix,workers=4', 'num_nodes': 4},
      'clip_by_stddev(2.5) > ternarize > radix(4)',
    ),
    ({'codec': 'powersgd'}, 'powersgd(1)'),
    (
      {'codec': 'error_feedback+powersgd:rank=2'},
      'error feedback > powersgd(2)',
    ),
    (
      {'codec': 'error_feedback+topk:ratio=0.01'},
      'error feedback > topk(0.01)',
    ),
    (
      {'codec': 'error_feedback+ternary', 'clip_factor': 2.0},
      'error feedback > clip_by_stddev(2) > ternarize > base3',
    ),
    (
      {'codec': 'error_feedback+ternary', 'grad_bits': 1},
      'error feedback > clip_by_stddev(2.5) > ternarize > base3',
    ),
    (
      {
        'codec': 'error_feedback+ternary:clip_factor=2',
        'packing': 'two_bit',
        'clip_factor': 2.0,
      },
      'error feedback > clip_by_stddev(2) > ternarize > two_bit',
    ),
  ],
)
def test_flags_choose_the_code(options, expected):
  made = config(**options)
  assert made.codes.methods(made.num_workers).code.name == expected


def test_flags_of_ternary_codes_are_logged_if_gradients_are_float32(caplog):
  # Scripts of 2017 set --clip_factor beside --grad_bits=32.
  config(clip_factor=2.5, packing='radix', num_nodes=4).validate()
  (record,) = caplog.records
  assert record.getMessage().startswith(
    'No effect beside --grad_bits=32, which sends float32: --clip_factor=2.5, '
    '--packing=radix. For ternary'
  )
  caplog.clear()
  for given in ({}, {'clip_factor': 2.5, 'grad_bits': 1}, {'codec': 'fp16'}):
    config(**given).validate()
  assert not caplog.records


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'grad_bits': 3}, r'expected 1 \(ternary\), 2, 4 or 8 '),
    (
      {'grad_bits': 8, 'clip_factor': 2.5},
      'clip_factor: expected it to be left out beside --grad_bits=8, which '
      'sends integers, received 2.5. Leave it out, or use --grad_bits=1',
    ),
    ({'grad_bits': 2, 'packing': 'two_bit'}, 'packing: expected it to be left'),
    (
      {'grad_bits': 4, 'scaler_rule': 'stddev'},
      'scaler_rule: expected it to be left out beside --grad_bits=4',
    ),
    ({'packing': 'nonsense'}, "packing: .*, two_bit, .*received 'nonsense'"),
    (
      {'scaler_rule': 'nonsense'},
      "scaler_rule: .*max_clipped, stddev, received 'nonsense'",
    ),
    ({'keep_checkpoints': 1}, 'keep_checkpoints: expected a number >= 2'),
    ({'profile_steps': ('10',)}, 'as 10,20, received 10. Give two'),
    ({'profile_steps': ('20', '10')}, 'as 10,20, received 20,10'),
    ({'profile_steps': ('1', 'x')}, 'as 10,20, received 1,x'),
    ({'profile_steps': ('0', '5')}, 'as 10,20, received 0,5'),
    ({'codec_rules': 'rank<2'}, "expected 'WHERE -> CODE'"),
    ({'codec_rules': '* -> fp61'}, "Did you mean 'fp16'"),
    (
      {
        'codec_rules': '*->ternary:packing=radix,workers=2',
        'num_nodes': 4,
      },
      'expected a code for the 4 nodes',
    ),
    ({'codec': 'ternery'}, "Did you mean 'ternary'"),
    ({'jit_compile': 'yes'}, 'jit_compile: expected one of auto, false, true'),
    (
      {'jit_compile': 'true', 'optimize_gradient_memory': True},
      'jit_compile: expected auto or false beside --optimize_gradient_memory',
    ),
    (
      {'jit_compile': 'true', 'bn_statistics': 'synchronized'},
      'beside .*--bn_statistics=synchronized',
    ),
    ({'codec': 'fp16', 'grad_bits': 1}, 'only one of the two'),
    ({'codec': 'fp16', 'packing': 'two_bit'}, 'packing: expected it to agree'),
    (
      {'codec': 'ternary:clip_factor=3', 'clip_factor': 2.5},
      'clip_factor: expected it to agree',
    ),
    (
      {'codec': 'ternary:packing=radix,workers=4', 'num_nodes': 8},
      'a code for the 8 nodes, received .* add at most 4.* workers=8',
    ),
    (
      {'codec': 'error_fedback+topk'},
      r"one of bidirectional, .* before \+, .*Did you mean 'error_feedback'",
    ),
    (
      {'codec': 'topk+ternary'},
      r"one of bidirectional, .* before \+.*'topk'",
    ),
    (
      {'codec': '+ternary'},
      r"one of bidirectional, .* before \+, received ''",
    ),
    ({'codec': 'error_feedback+'}, 'codec: expected one of .*powersgd'),
    ({'codec': 'error_feedback+topkk'}, "Did you mean 'topk'"),
    ({'codec': 'error_feedback'}, 'codec: expected one of .*topk'),
    ({'codec': 'error_feedback+powersgd:rang=2'}, "Did you mean 'rank'"),
    ({'codec': 'powersgd:rank=0'}, 'expected rank >= 1'),
    ({'codec': 'powersgd', 'grad_bits': 1}, 'only one of the two'),
    (
      {'codec': 'error_feedback+ternary:sharing=thin'},
      'Remove sharing=requantize',
    ),
    (
      {'codec': 'error_feedback+ternary:clip_factor=3', 'clip_factor': 2.5},
      r'clip_factor: expected it to agree with --codec=error_feedback\+.*'
      r'--codec=error_feedback\+ternary:clip_factor=2.5',
    ),
    (
      {'codec': 'error_feedback+topk', 'clip_factor': 2.5},
      'clip_factor: expected it to agree',
    ),
    (
      {
        'codec': 'error_feedback+ternary:packing=radix,workers=4',
        'num_nodes': 8,
      },
      'a code for the 8 nodes, received .* add at most 4.* workers=8',
    ),
    ({'clip_factor': -1.0}, 'clip_factor: expected a number >= 0'),
    ({'clip_factor': float('nan')}, 'clip_factor: expected'),
    ({'optimizer': 'adamw'}, "Did you mean 'adam'"),
    (
      {'learning_rate_decay_type': 'cosine'},
      'exponential, fixed, linear, polynomial',
    ),
    ({'num_gpus': 0}, 'num_gpus: expected a number >= 1'),
    (
      {'devices_per_worker': 2},
      'a divisor of the 1 devices of a process, received 2. Use --num_gpus=2',
    ),
    (
      {'num_gpus': 4, 'devices_per_worker': 3},
      'a divisor of the 4 devices of a process, received 3. Use --num_gpus=6',
    ),
    ({'devices_per_worker': 0}, 'devices_per_worker: expected a number >= 1'),
    (
      {'num_gpus': 4, 'devices_per_worker': 2, 'num_nodes': 2},
      'num_nodes: expected it to be left out beside --devices_per_worker=2, '
      'received 2: the number of devices',
    ),
    (
      {'num_gpus': 2, 'devices_per_worker': 2, 'device_weights': ('1', '2')},
      'device_weights: expected it to be left out .*, received 1,2: the '
      'devices of a node get equal parts',
    ),
    (
      {'num_gpus': 2, 'devices_per_worker': 2, 'bn_statistics': 'per_device'},
      'bn_statistics: expected it to be left out .*, received per_device',
    ),
    (
      {
        'num_gpus': 4,
        'devices_per_worker': 2,
        'local_steps': 3,
        'batch_size': 16,
      },
      'of the 2 nodes times 2 devices per worker times 3 local steps, received '
      '16. Use --batch_size=24',
    ),
    ({'batch_size': 30, 'num_nodes': 4}, 'multiple of the 4 nodes.*=32'),
    ({'num_nodes': 2, 'save_tower': 2}, 'node from 0 to 1'),
    ({'dropout_keep_prob': 1.5}, 'from 0 to 1'),
    ({'fine_tune': True}, 'fine_tune: expected --pretrained'),
    ({'restart_step': True}, 'restart_step: expected --pretrained'),
    ({'ignore_missing_vars': True}, 'ignore_missing_vars: expected --pret'),
    (
      {'checkpoint_exclude_scopes': 'zzz'},
      'checkpoint_exclude_scopes: expected --pretrained',
    ),
    ({'num_nodes': 0}, 'num_nodes: expected a number >= 1, or -1, received 0'),
    ({'num_nodes': -5}, 'num_nodes: expected .*, received -5. Leave it out'),
    (
      {
        'overwrite': True,
        'train_dir': '/t',
        'pretrained_model_checkpoint_path': '/t/model.ckpt-1',
      },
      'which would be deleted',
    ),
    ({'dropout_keep_prob': 0.0}, 'keeps nothing'),
    ({'codec': 'ternary:clip_factor=1,clip_factor=2'}, 'twice'),
    ({'max_steps': 0}, 'max_steps: expected a number >= 1'),
    ({'label_smoothing': 1.5}, 'label_smoothing: expected a number from 0'),
    ({'aux_loss_weight': -0.5}, 'aux_loss_weight: expected a number >= 0'),
    ({'batch_norm_decay': -0.5}, 'batch_norm_decay: expected a number from 0'),
    ({'batch_norm_decay': float('nan')}, 'batch_norm_decay: expected a number'),
    ({'batch_norm_decay': 1.0}, 'a number below 1.*would never change'),
    ({'initializer': 'norml'}, "Did you mean 'normal'"),
    ({'initializer': 'normal:stddev=0'}, 'a finite stddev above 0'),
    ({'clip_gradient_norm': float('inf')}, 'clip_gradient_norm: expected'),
    ({'dtype': 'bfloat'}, "Did you mean 'bfloat16'"),
    (
      {'bn_statistics': 'synchronized', 'num_gpus': 2, 'num_nodes': 4},
      'num_nodes: expected at most 2 beside .*, one per device, received 4',
    ),
    (
      {
        'bn_statistics': 'synchronized',
        'batch_size': 128,
        'gradient_accumulation_steps': 2,
      },
      'gradient_accumulation_steps: expected 1 beside .*received 2',
    ),
    (
      {'bn_statistics': 'per_device', 'num_gpus': 2, 'save_tower': 0},
      "save_tower: expected -1 beside .*other devices' statistics",
    ),
    (
      {'gradient_accumulation_steps': 3, 'num_nodes': 2, 'batch_size': 32},
      'multiple of the 2 nodes times 3 accumulation steps.*batch_size=36',
    ),
    ({'gradient_accumulation_steps': 0}, 'expected a number >= 1'),
    ({'local_steps': 0}, 'local_steps: expected a number >= 1'),
    ({'local_momentum': 0.9}, 'expected it to be left out without local'),
    ({'inner_optimizer': 'adamw'}, 'expected it to be left out without local'),
    (
      {'local_steps': 2, 'inner_optimizer': 'adam'},
      'inner_optimizer: expected one of adamw, momentum, muon, received',
    ),
    (
      {'local_steps': 2, 'inner_optimizer': 'adamw:beta2=1'},
      r'inner_optimizer: expected beta2 in \[0, 1\), received 1.0',
    ),
    (
      {'local_steps': 2, 'inner_optimizer': 'adamw', 'local_momentum': 0.9},
      'local_momentum: expected it to be left out beside .*=adamw',
    ),
    (
      {'local_steps': 2, 'inner_optimizer': 'adamw', 'dtype': 'float16'},
      'dtype: expected float32 or bfloat16 if nodes keep a state',
    ),
    (
      {'local_steps': 2, 'fragments': 2, 'dtype': 'float16'},
      'dtype: expected float32 or bfloat16 if nodes keep a state',
    ),
    (
      {'local_steps': 5, 'fragments': 3},
      'local_steps: expected a multiple of the 3 fragments.*local_steps=6',
    ),
    ({'fragments': 2}, 'local_steps: expected a multiple of the 2 fragments'),
    (
      {'local_steps': 6, 'fragments': 2, 'overlap_steps': 3},
      'overlap_steps: expected fewer than the 3 .*overlap_steps=2',
    ),
    (
      {'local_steps': 6, 'mixing_factor': 0.2},
      'mixing_factor: expected it to be left out without --overlap_steps',
    ),
    (
      {'local_steps': 6, 'overlap_steps': 1, 'mixing_factor': 1.5},
      'mixing_factor: expected a number from 0 to 1',
    ),
    (
      {'local_steps': 3, 'num_nodes': 2, 'batch_size': 32},
      'multiple of the 2 nodes times 3 local steps.*batch_size=36',
    ),
    (
      {'local_steps': 2, 'gradient_accumulation_steps': 2},
      'gradient_accumulation_steps: expected it to be left out',
    ),
    (
      {'local_steps': 2, 'decoupled_weight_decay': True},
      'local steps apply the L2 terms',
    ),
    (
      {'local_steps': 2, 'bn_statistics': 'synchronized'},
      'received synchronized: the parameters of nodes differ',
    ),
    (
      {
        'pretrained_weights': '/p/net.weights.h5',
        'pretrained_model_checkpoint_path': '/p/model.ckpt',
      },
      'pretrained_weights: expected it without',
    ),
  ],
)
def test_invalid_options_are_refused(options, message):
  with pytest.raises(errors.ConfigError, match=message):
    config(**options).validate()


def test_the_help_lists_all_codes():
  text = flags.help_text(configs.TrainConfig, {}, 'usage')
  found = ' '.join(text[text.index('--codec (') :].split())
  found = found[: found.index('--grad_bits (')]
  for name in (*registry.CODECS, *registry.METHODS):
    assert re.search(rf'\b{name}\b', found)
  for name in registry.WRAPPERS:
    assert f'{name}+NAME:...' in found


@pytest.mark.parametrize(
  'codec', ['error_feedback+powersgd:rank=2', 'error_feedback+ternary']
)
def test_a_method_of_several_messages_is_accepted(codec):
  taken = flags.parse(
    configs.TrainConfig, {'net': 'lenet'}, [f'--codec={codec}', '--num_nodes=2']
  ).values
  taken.validate()
  assert taken.codes.codec == codec


def test_an_unknown_net_is_refused_with_the_known_ones():
  with pytest.raises(errors.ConfigError, match="Did you mean 'lenet'"):
    options_lib.build(configs.TrainConfig, net='lennet').validate()


@pytest.mark.parametrize(('nodes', 'expected'), [(-1, 3), (0, 3), (7, 7)])
def test_nodes_are_the_devices_unless_set(nodes, expected):
  assert config(num_gpus=3, num_nodes=nodes).num_workers == expected


@pytest.mark.parametrize('ending', ['.index', ''])
def test_records_do_not_mix_beside_one_checkpoint_either(tmp_path, ending):
  (tmp_path / f'model.ckpt-4{ending}').touch()
  prefix = f'{tmp_path}/model.ckpt-4'
  for eval_dir, refused in ((tmp_path, True), (tmp_path / 'eval', False)):
    config = options_lib.build(
      configs.EvalConfig,
      **{'net': 'lenet', 'eval_dir': str(eval_dir), 'checkpoint_dir': prefix},
    )
    with (
      pytest.raises(errors.ConfigError, match='the records would mix')
      if refused
      else contextlib.nullcontext()
    ):
      config.validate()


def test_records_of_training_and_evaluation_do_not_mix():
  with pytest.raises(errors.ConfigError, match='the records would mix'):
    options_lib.build(
      configs.EvalConfig, net='lenet', eval_dir='/a/b', checkpoint_dir='/a/./b'
    ).validate()


def test_processes_find_each_other_through_a_rendezvous_folder(tmp_path):
  def rendezvous_config(**options):
    return config(
      exchange='collective',
      cluster='rendezvous',
      rendezvous_processes=1,
      **options,
    )

  found = rendezvous_config(
    rendezvous_dir=str(tmp_path), own_address='localhost:7'
  )
  assert found.cluster.tasks.jobs == {'worker': ('localhost:7',)}
  found.validate()
  # This machine's name is for others to reach, and nobody vouches for them.
  with pytest.raises(errors.ConfigError, match='--allow_insecure_network'):
    rendezvous_config(rendezvous_dir=str(tmp_path / 'other')).validate()


def test_device_weights_may_be_numbers():
  config(num_gpus=2, device_weights=(1.0, 0.25)).validate()


def test_momentum_is_checked_even_if_it_is_not_used():
  made = config(
    local_steps=2, inner_optimizer='momentum:momentum=0.9', local_momentum=5.0
  )
  with pytest.raises(errors.ConfigError, match='local_momentum'):
    made.validate()


def test_devices_of_a_worker_are_one_node():
  made = config(num_gpus=4, devices_per_worker=2, batch_size=16)
  made.validate()
  assert made.num_workers == 2
  hosts = 'localhost:2222,localhost:2223'
  made = config(
    num_gpus=4, devices_per_worker=4, exchange='collective', worker_hosts=hosts
  )
  assert made.num_workers == 2
