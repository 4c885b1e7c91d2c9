#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <torch/types.h>

#include "tern/data/data_loader.h"
#include "tern/learner/learner.h"
#include "tern/vision/image_folder.h"

namespace cv {
class Mat;
}

namespace tern {

/// An image as the model's data set makes it for validation: decoded, resized
/// and transformed; [H, W, C] kByte, a sample for `Learner::predict`.
///
/// \throws DataError, IoError if the file cannot be read; c10::ValueError if
///         the data come from no ImageDataset.
torch::Tensor prepare_image(
    const DataBunch& data,
    const std::filesystem::path& file);
/// \param image  BGR, BGRA or grey with 8 or 16 bits, as cv::imread gives it.
torch::Tensor prepare_image(const DataBunch& data, const cv::Mat& image);
/// \param image  [H, W] or [H, W, 1 or 3] kByte, RGB, of any size.
torch::Tensor prepare_image(const DataBunch& data, const torch::Tensor& image);

/// The model's answer to one image, prepared as for validation.
///
///   Prediction answer = predict(learn, "cat.jpg");
///   answer.label;   // "cat"
///
/// \throws as `prepare_image`.
Prediction predict(Learner& learn, const std::filesystem::path& file);
Prediction predict(Learner& learn, const cv::Mat& image);
Prediction predict(Learner& learn, const torch::Tensor& image);

/// A loader of images without labels, prepared as for validation. A file that
/// cannot be read is an error whatever `bad_images` says: another image must
/// not answer for it.
DataLoader test_loader(const DataBunch& data, std::vector<std::string> paths);

/// The model's answers to images without labels.
struct ImagePredictions {
  std::vector<std::string> paths;
  torch::Tensor preds;  // [N, ...] kFloat, activated; preds[i] is of paths[i]
  /// The likeliest class's name of each; empty without class names.
  std::vector<std::string> labels;
};

/// Asks for every image below a folder, in the order of their paths.
/// \throws DataError if there is none.
ImagePredictions get_preds(
    Learner& learn,
    const std::filesystem::path& folder,
    const ImageFolderOptions& options = {});
ImagePredictions get_preds(Learner& learn, std::vector<std::string> paths);

}  // namespace tern
