// A page of somebody else's program.
#include <cstdio>

#include <tern/examples/notebook.h>

int main() {
  tern::examples::Notebook note("Numbers");
  note.text("# A sum");
  std::printf("%d\n", 20 + 22);
}
