import json
import types

import pytest

from terngrad.cluster import resolvers
from terngrad.cluster import spec


def tf_config(jobs, job, index):
  return json.dumps({'cluster': jobs, 'task': {'type': job, 'index': index}})


def test_the_chief_of_a_tf_config_is_worker_0_and_workers_follow():
  jobs = {'chief': ['c:1'], 'worker': ['a:1', 'b:1'], 'ps': ['s:1']}
  jobs['evaluator'] = ['e:1']
  chief = resolvers.from_tf_config(tf_config(jobs, 'chief', 0))
  assert chief.jobs == {'ps': ('s:1',), 'worker': ('c:1', 'a:1', 'b:1')}
  assert chief.is_chief
  # Some write the index as text.
  other = resolvers.from_tf_config(tf_config(jobs, 'worker', '1'))
  assert other.address == 'b:1'
  assert resolvers.from_tf_config(tf_config(jobs, 'ps', 0)).address == 's:1'


@pytest.mark.parametrize(
  'text',
  [
    *('', '{', '[]', '{}', 'null', '{"cluster": {}}', '{"cluster": 3}'),
    '{"cluster": {"worker": 3}, "task": {"type": "worker", "index": 0}}',
    tf_config({'worker': [['a:1']]}, 'worker', 0),
    tf_config({'worker': ['a:1']}, 'worker', 1.0),
    tf_config({'worker': ['a:1']}, ['worker'], 0),
    tf_config({'chief': ['a:1', 'b:1']}, 'chief', 0),
    tf_config({'chief': ['a:1'], 'worker': ['b:1']}, 'chief', 1),
    tf_config({'master': ['a:1'], 'worker': ['b:1']}, 'master', -1),
    # Otherwise it would be worker 0, beside another one.
    tf_config({'worker': ['a:1']}, 'chief', 0),
    tf_config({'chief': ['a:1'], 'worker': ['b:1']}, 'master', 0),
    tf_config({'worker': ['a:1']}, 'evaluator', 0),
    tf_config({'work\ner': ['a:1']}, 'worker', 0),
  ],
)
def test_hostile_tf_configs_are_refused_in_one_line(text):
  with pytest.raises(spec.ClusterError, match='expected') as caught:
    resolvers.from_tf_config(text)
  assert '\n' not in str(caught.value)


def test_a_hosts_file_has_one_task_per_line():
  text = '# the cluster\na:1\n\nworker b:2  # fast\nps s:3\n'
  found = resolvers.from_hosts_text(text, 'worker', 1)
  assert found.jobs == {'ps': ('s:3',), 'worker': ('a:1', 'b:2')}
  assert found.address == 'b:2'


@pytest.mark.parametrize('line', ['boss a:1', 'ps a:1 b:2', 'a', 'a:1 ps'])
def test_a_line_that_cannot_be_read_is_named(line):
  with pytest.raises(spec.ClusterError, match='line 2: expected'):
    resolvers.from_hosts_text(f'a:1\n{line}\n', 'worker', 0)


def slurm_step(monkeypatch, nodes, per_node, rank, host):
  for name, value in {
    'SLURM_PROCID': rank,
    'SLURM_STEP_NUM_TASKS': 3,
    'SLURM_STEP_NODELIST': nodes,
    'SLURM_STEP_TASKS_PER_NODE': per_node,
    'SLURMD_NODENAME': host,
  }.items():
    monkeypatch.setenv(name, str(value))


def test_a_slurm_step_gives_the_first_tasks_to_the_ps(monkeypatch):
  slurm_step(monkeypatch, 'n[1-2]', '2,1', 2, 'n2')
  found = resolvers.from_slurm(1, 7000)
  assert found.jobs == {'ps': ('n1:7000',), 'worker': ('n1:7001', 'n2:7000')}
  assert (found.job, found.index) == ('worker', 1)
  assert resolvers.from_slurm(0, 7000).index == 2


def test_slurm_hosts_keep_the_order_of_their_list(monkeypatch):
  # Sorted by name n10 would come first.
  slurm_step(monkeypatch, 'n[9-10]', '2,1', 2, 'n10')
  found = resolvers.from_slurm(0, 7000)
  assert found.jobs == {'worker': ('n9:7000', 'n9:7001', 'n10:7000')}
  assert found.address == 'n10:7000'


def test_slurm_tasks_in_another_order_than_their_hosts_are_refused(monkeypatch):
  slurm_step(monkeypatch, 'n[9-10]', '2,1', 1, 'n10')
  with pytest.raises(spec.ClusterError, match=r'task 1 on n9.*n10.*=block'):
    resolvers.from_slurm(0, 7000)


@pytest.mark.parametrize(
  ('nodes', 'per_node', 'rank', 'message'),
  [
    ('n[9-10]', '3', 0, r"3 tasks on the hosts 'n\[9-10\]', received 3 on 1"),
    ('n9', '2', 0, 'received 2 on 1'),
    ('n9', '3', 3, 'this is task 3'),
    ('n[9-10', '2,1', 0, 'a list of 1 to 4096 hosts'),
    ('n9', '3(x', 0, 'numbers of tasks such as'),
    ('n9', '3', 'x', "job step.*'x'"),
    ('-n9', '3', 0, 'expected host:port'),
  ],
)
def test_inconsistent_slurm_steps_are_refused(
  monkeypatch, nodes, per_node, rank, message
):
  slurm_step(monkeypatch, nodes, per_node, rank, 'n9')
  with pytest.raises(spec.ClusterError, match=message):
    resolvers.from_slurm(0, 7000)


def test_a_process_without_slurm_step_is_refused(monkeypatch):
  monkeypatch.delenv('SLURM_STEP_NUM_TASKS', raising=False)
  with pytest.raises(spec.ClusterError, match='SLURM_STEP_NUM_TASKS.*srun'):
    resolvers.from_slurm(0, 7000)


def test_ranks_are_those_of_open_mpi_or_pmi():
  names = ('RANK', 'SIZE', 'LOCAL_RANK')
  ours = {f'OMPI_COMM_WORLD_{n}': str(i) for i, n in enumerate(names, 5)}
  assert resolvers.mpi_ranks({'HOME': '/', **ours}) == (5, 6, 7)
  theirs = {'PMI_RANK': '1', 'PMI_SIZE': '4', 'MPI_LOCALRANKID': '0'}
  assert resolvers.mpi_ranks(theirs) == (1, 4, 0)
  assert resolvers.mpi_ranks(theirs | ours) == (5, 6, 7)


@pytest.mark.parametrize(
  'changes', [{}, {'PMI_RANK': '-1'}, {'PMI_SIZE': ''}, {'PMI_SIZE': '9' * 9}]
)
def test_missing_ranks_of_mpirun_are_refused(changes):
  theirs = {'PMI_RANK': '1', 'PMI_SIZE': '4', 'MPI_LOCALRANKID': '0'}
  with pytest.raises(spec.ClusterError, match='MPI: .*OMPI_COMM_WORLD_RANK'):
    resolvers.mpi_ranks(theirs | changes if changes else {})


class Pods:
  """What the client of Kubernetes answers."""

  def __init__(self, hosts, phase='Running'):
    self._hosts = hosts
    self._phase = phase

  def list_pod_for_all_namespaces(self, label_selector):
    assert label_selector == 'app=train'
    items = [
      types.SimpleNamespace(
        metadata=types.SimpleNamespace(name=f'pod-{i}'),
        status=types.SimpleNamespace(phase=self._phase, host_ip=host),
      )
      for i, host in enumerate(self._hosts)
    ]
    return types.SimpleNamespace(items=items)


def test_kubernetes_pods_are_tasks_by_the_address_of_their_node():
  pods = Pods(['10.0.0.1', '10.0.0.2'])
  found = resolvers.from_kubernetes(
    {'worker': 'app=train'}, 2222, '10.0.0.2', pods
  )
  assert found.jobs == {'worker': ('10.0.0.1:2222', '10.0.0.2:2222')}
  assert found.index == 1


@pytest.mark.parametrize(
  ('pods', 'message'),
  [
    (Pods(['10.0.0.1']), 'expected a pod on .10.0.0.2:2222'),
    (Pods(['10.0.0.2'], 'Pending'), 'not running'),
    (
      Pods(['10.0.0.2', '10.0.0.2']),
      'received 10.0.0.2:2222 and',
    ),
  ],
)
def test_pods_without_a_valid_cluster_are_refused(pods, message):
  with pytest.raises(spec.ClusterError, match=message):
    resolvers.from_kubernetes({'worker': 'app=train'}, 2222, '10.0.0.2', pods)
