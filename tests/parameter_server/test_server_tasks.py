"""What a parameter server or a worker says before it serves."""

import socket

import pytest

from terngrad import errors
from terngrad.config import options
from terngrad.config import servers
from terngrad.parameter_server import server_tasks


@pytest.mark.parametrize('job', ['ps', 'worker'])
def test_a_second_process_of_a_task_is_refused_because_its_port_is_in_use(job):
  with socket.create_server(('localhost', 0)) as first:
    address = f'localhost:{first.getsockname()[1]}'
    ps, worker = (address, 'localhost:1')[:: 1 if job == 'ps' else -1]
    config = options.build(
      servers.ServerConfig,
      ps_hosts=ps,
      worker_hosts=f'localhost:2,{worker}',
      job_name=job,
      task_id=0 if job == 'ps' else 1,
    )
    with pytest.raises(errors.ConfigError) as caught:
      server_tasks.serve(config, lambda line: None)
  message = str(caught.value)
  assert f'({address}): expected to listen on its port, received: ' in message
  assert 'received: Address already in use. Stop the process that' in message
