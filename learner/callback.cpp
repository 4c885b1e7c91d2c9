#include "tern/learner/callback.h"

#include <typeinfo>

#include <c10/util/Type.h>

namespace tern {

std::string Callback::name() const {
  const std::string name = c10::demangle(typeid(*this).name());
  const size_t scope = name.rfind("::", name.find('<'));
  return scope == std::string::npos ? name : name.substr(scope + 2);
}

}  // namespace tern
