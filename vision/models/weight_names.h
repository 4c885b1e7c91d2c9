#pragma once

#include <string>
#include <vector>

namespace tern {

/// Translates weight names from timm, or from an older torchvision, into the
/// current names of the corresponding torchvision network. Names that the
/// network already has, and unknown names, are returned unchanged.
///
///   torchvision_names({"blocks.0.norm1.weight"}, names_of_a_vit_b_16);
///   // {"encoder.layers.encoder_layer_0.ln_1.weight"}
///
/// \param names   All names in the file.
/// \param wanted  All names in the network.
/// \return        One name for each of `names`, in the same order.
std::vector<std::string> torchvision_names(
    const std::vector<std::string>& names,
    const std::vector<std::string>& wanted);

}  // namespace tern
