#pragma once

// Names that the C++ in comments of public headers uses without declaring them:
// first those used by all headers, then a namespace per header.
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <torch/data/datasets/mnist.h>
#include <torch/optim/schedulers/step_lr.h>

#include "tern/tern.h"

namespace tern::header_names {

namespace nn = torch::nn;

extern Learner learn;
extern DataBunch data, streets;
extern Model model;
extern nn::Sequential net;
extern torch::Tensor x, y, loss, src, bgr;
extern torch::Device device;
extern torch::nn::CrossEntropyLoss loss_fn;
extern std::filesystem::path path, folder, cache;
extern std::string text;
extern std::span<const uint8_t> bytes;
extern std::shared_ptr<ProcessGroup> group;
extern Predictor predictor;

namespace data_data_loader_h {
extern std::shared_ptr<Dataset> dataset;
}
namespace data_dataset_h {
extern std::shared_ptr<Dataset> images;
}
namespace data_k_folds_h {
extern std::shared_ptr<Dataset> images, augmented_images;
Model make_model();
}  // namespace data_k_folds_h
namespace data_formats_archives_tar_write_h {
extern std::string_view image;
}
namespace data_formats_atomic_file_h {
extern std::string_view header, tensor;
}
namespace data_formats_json_h {
extern std::string key;
extern int64_t step;
}  // namespace data_formats_json_h
namespace data_formats_sha256_h {
extern std::span<const uint8_t> header, body;
}
namespace data_sample_dataset_h {
extern torch::Tensor lengths, boxes;
}
namespace data_sampler_h {
extern std::shared_ptr<TarDataset> images;
extern std::shared_ptr<Dataset> train, valid;
extern std::vector<int64_t> lengths;
}  // namespace data_sampler_h
namespace data_shards_tar_sample_h {
extern TarSample sample;
}
namespace data_stream_dataset_h {
extern std::shared_ptr<StreamDataset> stream;
extern StreamEpochs::Decode decode;
extern std::shared_ptr<Dataset> valid;
}  // namespace data_stream_dataset_h
namespace kernels_boxes_box_ops_h {
extern torch::Tensor objects, anchors, boxes, scores;
}
namespace learner_detections_h {
extern RetinaNet net;
extern torch::Tensor images;
}  // namespace learner_detections_h
namespace learner_distributed_gradient_reducer_h {
extern nn::Sequential model;
extern torch::Tensor inputs;
}  // namespace learner_distributed_gradient_reducer_h
namespace learner_distributed_optimizer_shard_h {
extern torch::optim::SGD optimizer;
}
namespace learner_metric_h {
torch::Tensor max_error(const torch::Tensor& pred, const torch::Tensor& target);
}
namespace learner_metrics_mean_average_precision_h {
extern Tensors detections, targets;
}
namespace learner_eval_mode_h {
extern Tensors inputs;
}
namespace learner_amp_grad_scaler_h {
extern torch::optim::SGD optimizer;
}
namespace learner_recorder_h {
double norm_of(const std::vector<NamedGradient>& gradients);
}
namespace learner_report_report_h {
extern std::vector<std::string> classes;
extern std::vector<std::vector<double>> counts;
}  // namespace learner_report_report_h
namespace callbacks_averages_ema_h {
extern std::shared_ptr<Ema> ema;
extern Tensors inputs;
}  // namespace callbacks_averages_ema_h
namespace callbacks_prune_trial_h {
Model make_model();
}
namespace callbacks_multi_optimizer_h {
torch::Tensor critic_loss(const Batch& batch);
torch::Tensor generator_loss(const Batch& batch);
}  // namespace callbacks_multi_optimizer_h
namespace vision_data_block_h {
extern DataBlock pets;
}
namespace vision_datasets_bad_images_h {
extern std::vector<std::string> train_paths, valid_paths;
}
namespace vision_interpret_confusion_matrix_h {
extern torch::Tensor logits, targets;
}
namespace vision_interpret_interpretation_h {
extern Interpretation interp;
}
namespace vision_models_detection_anchors_h {
extern torch::Tensor images;
extern Tensors levels;
}  // namespace vision_models_detection_anchors_h
namespace vision_models_detection_feature_pyramid_h {
extern std::shared_ptr<Backbone> body;
extern torch::Tensor images;
}  // namespace vision_models_detection_feature_pyramid_h
namespace vision_models_detection_retinanet_h {
extern torch::Tensor images;
}
namespace vision_models_matting_matting_base_h {
extern Loss loss;
}
namespace vision_models_matting_matting_refine_h {
extern Loss loss;
}
namespace vision_models_transformers_attention_h {
extern StateDict state;
}
namespace vision_models_vision_arch_h {
extern torch::Tensor features;
}
namespace vision_models_weight_names_h {
extern std::vector<std::string> names_of_a_vit_b_16;
}

}  // namespace tern::header_names
