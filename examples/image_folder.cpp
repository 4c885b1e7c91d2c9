// %% [markdown]
// # A photo classifier
//
// Trains and evaluates an image classifier on a folder of photos, and predicts
// with it:
//
// ```sh
// image_folder train clothing --arch resnet18 --size 128 --epochs 30 \
//   --precision bf16 --out model
// image_folder evaluate clothing --out model
// image_folder predict --out model shirt.jpg hat.jpg
// image_folder predict --model streets.safetensors photos --format json
// image_folder report clothing --out model
// ```
//
// A folder contains `train/CLASS/*.jpg` and `validation/CLASS/*.jpg` (or
// `valid/`), or only `CLASS/*.jpg`; in that case a fifth of the photos is used
// for validation. `predict` accepts any exported model and predicts its kind of
// output: a class, multiple labels, numbers, or masks. `--masks` draws the
// masks.

// %%
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <tern/tern.h>

#include "options.h"

namespace fs = std::filesystem;

struct Settings {
  std::string folder, arch = "resnet18", precision = "fp32";
  std::string format = "text";
  fs::path out = "model", pretrained, presize, model, masks;
  int64_t size = 128, epochs = 5, batch_size = 64;
  double lr = 3e-3;
  bool published = false;
  uint64_t seed = 42;

  tern::Pretrained weights() const {
    return published ? tern::Pretrained(true) : pretrained;
  }
};

// %% [markdown]
// ## Data and a Learner

// %%
tern::DataBunch read_data(const Settings& s) {
  const bool is_split = fs::exists(fs::path(s.folder) / "validation");
  auto data = tern::ImageDataBunch::from_folder(
      s.folder,
      {.valid = is_split ? "validation" : "valid",
       .seed = s.seed,
       .size = s.size,
       .transforms =
           {.train =
                {tern::random_resized_crop({0.35f, 1}),
                 tern::flip_lr(),
                 tern::brightness(),
                 tern::contrast()},
            .valid = {tern::center_crop()}},
       .batch_size = s.batch_size});
  if (!s.presize.empty()) {
    data.presize(s.presize, {s.size * 5 / 4, s.size * 5 / 4});
  }
  return data;
}

tern::Learner make_learner(const tern::DataBunch& data, const Settings& s) {
  return tern::vision_learner(
      data,
      s.arch,
      {.pretrained = s.weights(),
       .learner = {
           .loss = tern::label_smoothing_cross_entropy(),
           .metrics = {tern::accuracy()},
           .bn_weight_decay = false,
           .path = s.out,
           .model_dir = "",
           .seed = s.seed}});
}

// Writes a report on the run, with the confusion matrix and the images with the
// largest losses.
void write_report(tern::Learner& learn, const Settings& s, const char* name) {
  const auto interp = tern::ClassificationInterpretation::from(learn);
  const fs::path file = s.out / name;
  tern::make_report(
      learn,
      {.title = s.arch + " on " + s.folder,
       .sections = {tern::classification_section(interp)}})
      .save(file);
  fmt::print("{}\n", file.string());
}

// %% [markdown]
// ## Training, evaluation and prediction

// %%
void train(const Settings& s) {
  auto learn = make_learner(read_data(s), s);
  if (s.precision == "fp16") learn.to_fp16();
  if (s.precision == "bf16") learn.to_bf16();
  if (!s.weights()) {
    learn.fit_one_cycle(s.epochs, s.lr);
  } else {
    learn.fine_tune(s.epochs);
  }
  learn.save("weights");
  learn.export_model(s.out / "model.safetensors");
  fmt::print("saved to {}\n", s.out.string());
  write_report(learn, s, "training.html");
}

void evaluate(const Settings& s) {
  auto learn = make_learner(read_data(s), s);
  const auto result = learn.load("weights").validate();
  fmt::print("accuracy {:.4f}\n", result.metrics[0].value);
}

tern::PredictionFormat format_of(const Settings& s) {
  return s.format == "csv"    ? tern::PredictionFormat::csv
         : s.format == "json" ? tern::PredictionFormat::json
                              : tern::PredictionFormat::text;
}

// Draws the predicted mask over the photo as the model receives it.
void draw_mask(
    const Settings& s,
    const tern::Predictor& predictor,
    const tern::FilePrediction& file) {
  const torch::Tensor& mask = file.prediction.mask;
  if (s.masks.empty() || !mask.defined() || mask.dim() != 2) return;
  fs::create_directories(s.masks);
  const fs::path name = fs::path(file.path).stem().string() + ".png";
  tern::save_image(
      s.masks / name,
      tern::with_mask(predictor.prepare(fs::path(file.path)), mask));
}

void predict(const Settings& s, const std::vector<std::string>& files) {
  const auto predictor = tern::Predictor::load(
      s.model.empty() ? s.out / "model.safetensors" : s.model);
  std::vector<tern::FilePrediction> predictions;
  for (const auto& file : files) {
    if (fs::is_directory(file)) {
      for (auto& prediction : predictor.predict_folder(file)) {
        predictions.push_back(std::move(prediction));
      }
    } else {
      predictions.push_back({file, predictor.predict(fs::path(file))});
    }
  }
  for (const auto& prediction : predictions)
    draw_mask(s, predictor, prediction);
  const auto& outputs = predictor.card().outputs;
  fmt::print(
      "{}",
      tern::format_predictions(predictions, outputs, format_of(s)));
}

void report(const Settings& s) {
  auto learn = make_learner(read_data(s), s);
  learn.load("weights");
  write_report(learn, s, "report.html");
}

// %%
int main(int argc, char** argv) try {
  Settings s;
  std::vector<std::string> files;
  tern::examples::Options app(
      "Trains an image classifier and predicts with it");
  app.require_subcommand(1);
  auto* training = app.add_subcommand("train", "train a model and save it");
  auto* checking = app.add_subcommand("evaluate", "print the accuracy");
  auto* asking =
      app.add_subcommand("predict", "predict image files or folders of images");
  auto* reporting = app.add_subcommand("report", "write a report");
  for (auto* command : {training, checking, reporting}) {
    command->fallthrough()->add_option("folder", s.folder)->required();
  }
  asking->fallthrough()
      ->add_option("files", files, "files or folders")
      ->required();
  app.add_option("--arch", s.arch, "resnet18, convnext_tiny, swin_t, ...");
  app.add_number("--size", s.size, 8, 4096, "height and width in pixels");
  app.add_option("--out", s.out, "folder of the model");
  app.add_number("--epochs", s.epochs, 1, 10'000, "passes over the data");
  app.add_number("--lr", s.lr, 1e-8, 10, "maximum learning rate");
  app.add_number("--batch-size", s.batch_size, 1, 65536);
  app.add_choice("--precision", s.precision, {"fp32", "fp16", "bf16"});
  app.add_option("--pretrained", s.pretrained, "weights, .pth or .safetensors");
  app.add_flag("--published", s.published, "start from ImageNet weights");
  app.add_option("--presize", s.presize, "folder for downscaled photos");
  app.add_number("--seed", s.seed, 0, UINT32_MAX);
  app.add_choice("--format", s.format, {"text", "csv", "json"});
  app.add_option("--model", s.model, "exported model to predict with");
  app.add_option("--masks", s.masks, "folder for drawn masks");
  app.read(argc, argv);

  // %% [markdown]
  // ## Running a command

  // %%
  if (*training) train(s);
  if (*checking) evaluate(s);
  if (*asking) predict(s, files);
  if (*reporting) report(s);
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}
