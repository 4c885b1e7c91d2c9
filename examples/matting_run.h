#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tern/tern.h>

namespace tern::examples {

class Options;

/// What the programs that train the two matting networks have in common: most
/// options, named as in BackgroundMattingV2's programs, and what happens beside
/// the training.
struct MattingRun {
  /// Folders with {train,valid}/{pha,fgr} and {train,valid}, or without train
  /// and valid.
  std::string dataset = {}, backgrounds = {};
  /// Names the folders checkpoint/NAME and log/NAME: each program has one of
  /// its own, as the two networks do not fit into each other.
  std::string name = {};
  std::string backbone = "resnet50", precision = "amp";
  int64_t size = 512, batch_size = 8, workers = 2, epochs = 8;
  double rate = 1;
  bool one_cycle = false;
  uint64_t seed = 42;
  int64_t loss_interval = 10, images_interval = 2000,
          checkpoint_interval = 5000;

  void add_options(Options& app);
  /// \param pair_scale  See `matting_transforms`.
  DataBunch data(Range pair_scale) const;
  /// Loss, metrics and Adam without weight decay.
  LearnerOptions options(Loss loss) const;
  /// Trains in the wanted precision, goes on from the last checkpoint if there
  /// is one, writes logs, pictures and at last the network.
  /// \param rates  For each layer group.
  void train(Learner& learn, std::vector<double> rates) const;
};

}  // namespace tern::examples
