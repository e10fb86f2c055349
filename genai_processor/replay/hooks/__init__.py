# SPDX-License-Identifier: Apache-2.0
"""The replay in front of agent frameworks: one file for each, there only as long as a `with replaying(...)` block is."""
