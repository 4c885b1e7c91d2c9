// %% [markdown]
// # Interpreting a classifier
//
// Plots batches, results, confused classes, top losses and Grad-CAM. Without
// arguments the program trains a network on threes and sevens.

// %%
#include <algorithm>
#include <filesystem>
#include <string>

#include <fmt/format.h>
#include <tern/tern.h>

#include "options.h"
#include "support/synthetic_digits.h"

double fraction_correct(const tern::Predictions& predictions) {
  return (predictions.preds.argmax(1) == predictions.targets)
      .to(torch::kDouble)
      .mean()
      .item<double>();
}

// %%
int main(int argc, char** argv) try {
  std::string images, out = ".";
  int64_t epochs = 1, size = 28;
  tern::examples::Options app(
      "Trains an image classifier and plots its results");
  app.add_option(
      "--images",
      images,
      "folder of CLASS/ folders; empty: MNIST's sample");
  app.add_number("--size", size, 8, 4096, "height and width in pixels");
  app.add_number("--epochs", epochs, 1, 10'000, "passes over the data");
  app.add_option("--out", out, "folder for the plots");
  app.read(argc, argv);
  const std::filesystem::path plots(out);
  std::filesystem::create_directories(plots);
  const bool is_mnist = images.empty();
  if (is_mnist)
    images = tern::examples::mnist_or_digits(tern::urls::mnist_sample).string();

  // %% [markdown]
  // ## Data and a Learner

  // %%
  tern::seed_everything(7);
  auto data = tern::ImageDataBunch::from_folder(
      images,
      {.size = size,
       .transforms = tern::get_transforms({.do_flip = !is_mnist})});
  const auto classes = static_cast<int64_t>(data.classes.size());
  const tern::Model model =
      is_mnist ? tern::Model(tern::simple_cnn({3, 16, 16, classes}))
               : tern::Model(tern::resnet18({.num_classes = classes}));
  tern::Learner learn(data, model, {.metrics = {tern::accuracy()}});

  // %% [markdown]
  // ## Batches and results
  //
  // `show_batch` draws the augmented images as the model receives them.

  // %%
  tern::show_batch(data, plots / "batch.png");
  learn.fit_one_cycle(epochs, 1e-2);
  tern::show_results(learn, plots / "results.png");

  // %% [markdown]
  // ## Confused classes and top losses

  // %%
  // Evaluates once; the plots below use its predictions.
  const auto interp = tern::ClassificationInterpretation::from(learn);
  interp.plot_confusion_matrix(plots / "confusion.png");
  interp.plot_top_losses(plots / "top_losses.png", 9);
  for (const tern::Confusion& pair : interp.most_confused()) {
    fmt::print(
        "{:4} times {} was predicted as {}\n",
        pair.count,
        pair.actual,
        pair.predicted);
  }

  // %% [markdown]
  // ## Grad-CAM of the image with the largest loss

  // %%
  const tern::TopLoss worst = interp.top_losses(1).front();
  const std::string file = interp.dataset().describe(worst.index);
  const tern::GradCam cam =
      tern::plot_grad_cam(learn, file, plots / "grad_cam.png");
  fmt::print(
      "largest loss: {}, predicted as {}, loss {:.2f}; Grad-CAM of layer {}\n",
      file,
      cam.prediction.label,
      worst.loss,
      cam.layer);

  // %% [markdown]
  // ## Test-time augmentation, and predictions for files

  // %%
  // Averages the predictions for four augmented copies of each image.
  const double plain = fraction_correct(learn.get_preds());
  const double augmented = fraction_correct(learn.tta());
  fmt::print("accuracy {:.4f}, with tta {:.4f}\n", plain, augmented);

  // Predicts a file and a folder without labels.
  const tern::Prediction one = learn.predict(file);
  const tern::ImagePredictions all =
      tern::get_preds(learn, std::filesystem::path(file).parent_path());
  const auto same = std::count(all.labels.begin(), all.labels.end(), one.label);
  fmt::print(
      "of {} images in its folder {} are predicted as {}\n",
      all.paths.size(),
      same,
      one.label);
  return plain > 1.0 / static_cast<double>(classes) && same > 0 ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}
