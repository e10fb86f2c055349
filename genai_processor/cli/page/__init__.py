# SPDX-License-Identifier: Apache-2.0
"""A replay plan as one HTML file, for a browser without a network."""
