#!/usr/bin/env bash
# Trains LeNet on MNIST, and evaluates it side by side.
# shellcheck source=scripts/multi_gpus.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/multi_gpus.sh" \
  mnist lenet '' num_nodes "$@"
