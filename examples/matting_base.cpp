// %% [markdown]
// # Background matting: the base network
//
// Trains the base network of Lin et al., "Real-Time High-Resolution Background
// Matting", with the options of the authors' program. The network separates a
// person or an object from its background, given a second photo of the
// background alone. Training composites foregrounds with known alphas over
// other photos.
//
// Training uses mixed precision. An interrupted run resumes when the program is
// started again, and ends with bit-identical weights. TensorBoard displays
// `log/NAME`.

// %%
#include <string>

#include <fmt/format.h>
#include <tern/tern.h>

#include "matting_run.h"
#include "options.h"

// %%
int main(int argc, char** argv) try {
  tern::examples::MattingRun run{.name = "base"};
  std::string pretrained, checkpoint;
  tern::examples::Options app("Trains the base network of background matting");
  run.add_options(app);
  app.add_option(
      "--model-pretrain-initialization",
      pretrained,
      "weights of a DeepLabV3 with the same backbone");
  app.add_option(
      "--model-last-checkpoint",
      checkpoint,
      "weights of a base network to start from");
  app.read(argc, argv);

  // %% [markdown]
  // ## Network, data and loss

  // %%
  tern::seed_everything(run.seed);
  tern::MattingBase net(
      tern::MattingBaseOptions{tern::matting_backbone(run.backbone)});
  for (const std::string& file : {pretrained, checkpoint}) {
    if (!file.empty()) tern::load_matting_weights(net, file);
  }
  auto learn = tern::Learner(
      run.data(/*pair_scale=*/{0.4f, 1}),
      net,
      run.options(tern::matting_base_loss));
  learn.split({"aspp", "decoder"});

  // %% [markdown]
  // ## Training
  //
  // The program writes figures of mattes before and after training to
  // `log/NAME`.

  // %%
  run.train(learn, {1e-4, 5e-4, 5e-4});
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}
