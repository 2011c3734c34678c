#!/usr/bin/python3
"""Tests that the kernel's package is found, whatever language apt speaks."""

import os
import tempfile
import unittest
from unittest import mock

import harness  # noqa: F401 finds the package vm

from vm import image

APT_CACHE = """#!/bin/sh
echo linux-image-amd64
if [ "$LC_ALL" = C ]; then says=Depends; else says="Hängt ab von"; fi
echo "  $says: linux-image-6.1.0-1-amd64"
"""


class PackageName(unittest.TestCase):
    def test_is_found_where_apt_is_translated(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "apt-cache")
            with open(path, "w") as file:
                file.write(APT_CACHE)
            os.chmod(path, 0o755)
            ours = {"PATH": folder + ":" + os.environ["PATH"], "LC_ALL": "de_DE.UTF-8"}
            with mock.patch.dict(os.environ, ours):
                self.assertEqual(image.package_name(), "linux-image-6.1.0-1-amd64")


if __name__ == "__main__":
    unittest.main()
