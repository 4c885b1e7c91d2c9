"""The external project that `conan create` builds and runs against the package."""
import os

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeToolchain


class Outside(ConanFile):
    settings = "os", "arch", "compiler", "build_type"

    def layout(self):
        self.folders.build = self.folders.generators = "../../../build-conan"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["Torch_DIR"] = str(self.dependencies["tern"].options.torch_dir)
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure(build_script_folder=os.pardir)
        cmake.build()

    def test(self):
        for program in ("line", "images", "page"):
            if os.path.exists(os.path.join(self.build_folder, program)):
                self.run(os.path.join(self.build_folder, program))
