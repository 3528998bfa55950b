#!/usr/bin/env bash
# Write requirements/ci-*.txt: every package that the checks run with, pinned, for all their Pythons.
set -euo pipefail
cd "$(dirname "$0")/.."
lock() {
    uv pip compile --universal --quiet --no-header --no-emit-index-url --no-emit-find-links --no-annotate \
        --no-emit-package dlb-worker --python-version "$1" "${@:3}" --output-file "requirements/ci-$2.txt" \
        - <<<"dlb-worker @ file://$PWD/worker"
    # A framework would pin it for everyone, and on Linux torch brings CUDA libraries.
    if grep -qiE '^(torch|tensorflow|mxnet|chainer|nvidia-[a-z-]+)==' "requirements/ci-$2.txt"; then
        echo "requirements/ci-$2.txt has a framework" >&2
        exit 1
    fi
}
lock 3.10 core requirements/core.in core/pyproject.toml --extra imagenet --extra parquet --extra pandas
lock 3.10 browser requirements/browser.in core/pyproject.toml --extra plots
lock 3.10 executors requirements/executors.in core/pyproject.toml
lock 3.11 lint requirements/lint.in
lock 3.11 types requirements/types.in core/pyproject.toml
lock 3.11 docs requirements/docs.in core/pyproject.toml
