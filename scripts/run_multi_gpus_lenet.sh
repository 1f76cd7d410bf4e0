#!/usr/bin/env bash
# Trains LeNet on MNIST, and evaluates it side by side.
set -euo pipefail
# shellcheck source=scripts/multi_gpus.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/multi_gpus.sh"

run_multi_gpus mnist lenet '' num_nodes "$@"
