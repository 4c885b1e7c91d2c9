#pragma once

#include <filesystem>

namespace tern {

/// Writes learner/weights/python_loader.py beside an exported model, under its
/// name with the ending .py. \throws IoError.
void write_python_loader(const std::filesystem::path& model);

}  // namespace tern
