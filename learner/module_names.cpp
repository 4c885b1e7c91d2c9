#include "tern/learner/module_names.h"

namespace tern {

std::string unqualified_name(std::string class_name) {
  // Colons between < and > belong to template arguments.
  int open_brackets = 0;
  size_t begin = class_name.size();
  for (; begin > 0; --begin) {
    const char c = class_name[begin - 1];
    if (c == ':' && open_brackets == 0) break;
    open_brackets += c == '>' ? 1 : c == '<' ? -1 : 0;
  }
  return class_name.erase(0, begin);
}

std::string module_class_name(const std::string& class_name) {
  std::string name = unqualified_name(class_name);
  // TORCH_MODULE(Net) defines the holder Net for a class NetImpl.
  if (name.ends_with("Impl")) name.resize(name.size() - 4);
  return name;
}

bool is_in_module(const std::string& name, const std::string& module) {
  return name == module || name.starts_with(module + ".");
}

}  // namespace tern
