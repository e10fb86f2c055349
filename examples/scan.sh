#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Reads recorded traces (OTLP/JSON lines) and says of each failed tool call whether it may be tried again.
# Needs the command: pip install '.[cli]'
set -eu
cd "$(dirname "$0")/.."

# A refund that failed and was asked for again; and a call that the framework refused, since its arguments did not fit.
genai-processor scan tests/data/recorded/agno__genai/s06_retry_new_id.jsonl \
                     tests/data/recorded/agno__genai/s04b_wrong_type.jsonl
