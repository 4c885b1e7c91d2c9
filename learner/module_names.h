#pragma once

#include <string>

namespace tern {

/// A class's name without the namespaces and classes around it: "Net<a::B>" for
/// "tern::Net<a::B>".
std::string unqualified_name(std::string class_name);

/// The name that a module's class has in Python: "Conv2d" for
/// "torch::nn::Conv2dImpl".
/// \param class_name  As of Module::name().
std::string module_class_name(const std::string& class_name);

/// Whether a tensor or module with this name is the module or is inside it:
/// "layer1.0.weight" is in "layer1", "layer10.weight" is not.
bool is_in_module(const std::string& name, const std::string& module);

}  // namespace tern
