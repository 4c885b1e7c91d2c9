#include "tern/learner/weights/python_loader.h"

#include <string_view>

#include <tern_python_loader.h>

#include "tern/data/formats/atomic_file.h"

namespace tern {

void write_python_loader(const std::filesystem::path& model) {
  AtomicFile file(std::filesystem::path(model).replace_extension(".py"));
  file.write(std::string_view(kPythonLoader));
  file.commit();
}

}  // namespace tern
