# SPDX-License-Identifier: Apache-2.0
"""What a span says, whoever wrote it and wherever it was recorded."""
