"""Tests of the SDK: python3 -m unittest, in the folder sdk/python."""

import logging

logging.getLogger("stepwell").setLevel(logging.CRITICAL)  # runs are blocked on purpose
