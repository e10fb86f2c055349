# SPDX-License-Identifier: Apache-2.0
"""What it costs. Ratios measured side by side in one run; nothing here is a test."""
