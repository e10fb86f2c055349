# SPDX-License-Identifier: Apache-2.0
"""Seeing what models are asked, in front of agent frameworks: for the stamps of spans that do not record it."""
