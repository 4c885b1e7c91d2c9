// Writes weight files for check_weight_files.py. Usage: write_weight_files OUT

#include <filesystem>

#include "tern/data/formats/archives/zip_archive.h"
#include "tern/data/formats/atomic_file.h"
#include "tern/data/formats/file_io.h"
#include "tern/learner/model.h"
#include "tern/learner/weights/weights.h"
#include "tern/tests/parity/weight_net.h"
#include "tern/tests/support/state_dicts.h"
#include "tern/tests/support/zip_writer.h"

namespace tern {
namespace {

// The same archive in zip64, as for sizes and offsets beyond 4 GiB.
void rewrite_as_zip64(
    const std::filesystem::path& from,
    const std::filesystem::path& to) {
  const ZipArchive archive((ByteFile(from)));
  AtomicFile file(to);
  ZipWriter zip(file, /*zip64_from=*/1);
  for (const auto& [name, entry] : archive.entries()) {
    zip.add(name, archive.read(name, 1 << 20), 64);
  }
  zip.finish();
  file.commit(/*durable=*/false);
}

void write_weight_files(const std::filesystem::path& out) {
  make_folders(out);
  const StateDict types = test::types_state();
  save_pth(out / "types.pth", types);
  rewrite_as_zip64(out / "types.pth", out / "zip64.pth");
  save_pth(out / "layout.pth", test::layout_state());
  const Model net = test::WeightNet();
  save_pth(out / "net.pth", net.state_dict());
  save_safetensors(
      out / "types.safetensors",
      test::without(types, {"complex128"}),
      {{"format", "pt"}, {"note", "a \"quoted\" é\n"}});
}

}  // namespace
}  // namespace tern

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  tern::write_weight_files(argv[1]);
}
