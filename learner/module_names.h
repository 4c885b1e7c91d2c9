#pragma once

#include <string>

namespace tern {

/// Returns a class name without enclosing namespaces and classes: "Net<a::B>"
/// for "tern::Net<a::B>".
std::string unqualified_name(std::string class_name);

/// Returns the Python name of a module's class: "Conv2d" for
/// "torch::nn::Conv2dImpl".
/// \param class_name  As returned by Module::name().
std::string module_class_name(const std::string& class_name);

/// True if the tensor or module `name` is `module` itself or is inside it:
/// "layer1.0.weight" is in "layer1", "layer10.weight" is not.
bool is_in_module(const std::string& name, const std::string& module);

}  // namespace tern
