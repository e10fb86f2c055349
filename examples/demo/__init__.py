# SPDX-License-Identifier: Apache-2.0
"""`make demo`: one agent, one lost answer, three ways to run it."""
