#!/usr/bin/env bash
# Is one worker that trains cifar10_alexnet on CIFAR-10.
set -euo pipefail
# shellcheck source=scripts/single.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/single.sh"

run_single_worker cifar10 cifar10 "$@"
