"""Tern for Conan 2; docs/building.md has the command.

LibTorch is not in Conan Center in the version that Tern is written for, and
OpenCV, libarchive and the others have to be the ones that LibTorch's process
loads: all come from the system, as with `./dev`. A consumer calls
`find_package(tern)`, and gives CMake the same Torch_DIR.
"""
import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain
from conan.tools.files import copy, load
from conan.tools.system.package_manager import Apt


class Tern(ConanFile):
    name = "tern"
    description = "fastai's way of training for C++, on LibTorch"
    license = "Apache-2.0"
    package_type = "static-library"
    test_package_folder = "tests/install/conan"
    settings = "os", "arch", "compiler", "build_type"
    options = {"cuda": [True, False], "vision": [True, False], "torch_dir": ["ANY"]}
    default_options = {"cuda": False, "vision": True, "torch_dir": ""}
    exports = "version.h"
    exports_sources = (
        "CMakeLists.txt", "tern.h", "version.h", "LICENSE", "NOTICE",
        *(f"{folder}/*" for folder in "callbacks cmake data kernels learner tools vision".split()))

    def set_version(self):
        text = load(self, os.path.join(self.recipe_folder, "version.h"))
        self.version = re.search(r'VERSION_STRING "(.*)"', text).group(1)

    def validate(self):
        check_min_cppstd(self, 20)
        if not os.path.exists(os.path.join(str(self.options.torch_dir), "TorchConfig.cmake")):
            raise ConanInvalidConfiguration(
                f"torch_dir is '{self.options.torch_dir}'; expected the folder of LibTorch's "
                'TorchConfig.cmake: -o "tern/*:torch_dir=LIBTORCH/share/cmake/Torch"')

    def system_requirements(self):
        packages = ["libssl-dev", "zlib1g-dev", "nlohmann-json3-dev", "libgloo-dev", "libarchive-dev",
                    "libcurl4-openssl-dev", "libpugixml-dev", "librsvg2-dev", "pkg-config", "libcli11-dev"]
        if self.options.vision:
            packages += ["libopencv-dev", "libjpeg-dev", "libdeflate-dev"]
        Apt(self).install(packages, check=True)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables.update({
            "Torch_DIR": str(self.options.torch_dir),
            "TERN_CUDA": bool(self.options.cuda),
            "TERN_VISION": bool(self.options.vision),
            "TERN_TESTS": False,
            "TERN_EXAMPLES": False,
        })
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        for file in ("LICENSE", "NOTICE"):
            copy(self, file, self.source_folder, os.path.join(self.package_folder, "licenses"))
        CMake(self).install()

    def package_info(self):
        # Tern's own package, which finds what it stands on.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs.append(os.path.join("lib", "cmake", "tern"))
