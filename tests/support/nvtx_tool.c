/* A tool as NVTX loads it, from the file that NVTX_INJECTION64_PATH names: it
   keeps the names of ranges as they open, and "-" as they close. */
#include <nvtx3/nvToolsExt.h>
#include <string.h>

static char seen[1 << 16]; /* a line for each */

static void keep(const char* text) {
  if (strlen(seen) + strlen(text) + 2 > sizeof seen) return;
  strcat(strcat(seen, text), "\n");
}

static int NVTX_API push(const char* name) {
  keep(name);
  return 0;
}

static int NVTX_API pop(void) {
  keep("-");
  return 0;
}

const char* nvtx_tool_seen(void) {
  return seen;
}

void nvtx_tool_clear(void) {
  seen[0] = 0;
}

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t table) {
  NvtxFunctionTable functions = 0;
  unsigned int size = 0;
  const NvtxExportTableCallbacks* callbacks = table(NVTX_ETID_CALLBACKS);
  callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &functions, &size);
  *functions[NVTX_CBID_CORE_RangePushA] = (NvtxFunctionPointer)push;
  *functions[NVTX_CBID_CORE_RangePop] = (NvtxFunctionPointer)pop;
  return 1;
}
