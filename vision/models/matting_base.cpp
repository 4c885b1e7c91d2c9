#include "tern/vision/models/matting_base.h"

#include "tern/data/formats/json_fields.h"
#include "tern/vision/models/conv_layer.h"

namespace tern {

MattingBaseImpl::MattingBaseImpl(const MattingBaseOptions& options)
    : options_(options) {
  reset();
}

void MattingBaseImpl::reset() {
  coarse_.emplace(options_.backbone, *this);
  store_channels_last(*this);
}

MattingOutput MattingBaseImpl::forward(
    const torch::Tensor& src,
    const torch::Tensor& bgr) {
  check_matting_inputs("MattingBase", src, bgr);
  MattingOutput out = coarse_->forward(src, bgr);
  out.fgr = (out.fgr + src).clamp(0, 1);
  return out;
}

Architecture MattingBaseImpl::architecture() const {
  std::string backbone = to_string(options_.backbone);
  return {"matting_base", to_json({{"backbone", &backbone}})};
}

MattingBase build_matting_base(const Architecture& architecture) {
  std::string backbone = to_string(MattingBaseOptions().backbone);
  read_json(
      architecture.options,
      {{"backbone", &backbone}},
      "the options of " + architecture.name);
  return MattingBase(MattingBaseOptions{matting_backbone(backbone)});
}

}  // namespace tern
