#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tern/tern.h>

namespace tern::examples {

class Options;

/// Options and code shared by the programs that train the two matting networks.
/// The options are named as in BackgroundMattingV2's programs.
struct MattingRun {
  /// `dataset` contains {train,valid}/{pha,fgr}, and `backgrounds` contains
  /// {train,valid}. Without train and valid, both are split at random; see
  /// `matting_data`.
  std::string dataset = {}, backgrounds = {};
  /// Names the folders checkpoint/NAME and log/NAME. Each program uses a
  /// different name, since the two networks cannot load each other's
  /// checkpoints.
  std::string name = {};
  std::string backbone = "resnet50", precision = "amp";
  int64_t size = 512, batch_size = 8, workers = 2, epochs = 8;
  double rate = 1;
  bool one_cycle = false;
  uint64_t seed = 42;
  int64_t loss_interval = 10, images_interval = 2000,
          checkpoint_interval = 5000;

  /// Adds the shared options to `app`.
  void add_options(Options& app);
  /// Reads the data.
  /// \param pair_scale  See `matting_transforms`.
  DataBunch data(Range pair_scale) const;
  /// Returns options with `loss`, the matting metrics, and Adam without weight
  /// decay.
  LearnerOptions options(Loss loss) const;
  /// Trains in `precision`, and resumes from the last checkpoint if there is
  /// one. Writes checkpoints, logs, figures and, at the end, the network.
  /// \param rates  Learning rate of each layer group, multiplied by `rate`.
  void train(Learner& learn, std::vector<double> rates) const;
};

}  // namespace tern::examples
