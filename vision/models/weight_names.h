#pragma once

#include <string>
#include <vector>

namespace tern {

/// What a network of torchvision's calls the weights that timm, or an older
/// torchvision, wrote for it. Names that the network has, and those of which
/// nothing is known, stay.
///
///   torchvision_names({"blocks.0.norm1.weight"}, names_of_a_vit_b_16);
///   // {"encoder.layers.encoder_layer_0.ln_1.weight"}
///
/// \param names   All names of a file.
/// \param wanted  All names of the network.
/// \return        As many as `names`, in their order.
std::vector<std::string> torchvision_names(
    const std::vector<std::string>& names,
    const std::vector<std::string>& wanted);

}  // namespace tern
