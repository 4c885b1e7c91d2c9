/* Stands in for NVIDIA's driver, libcuda.so.1, on a machine without one: it has
   no device and counts who calls it. The CUDA runtime finds all functions of a
   driver by the first of these. */
int tern_driver_calls = 0;

enum { no_device = 100, not_found = 500 };

int cuGetProcAddress_v2(
    const char* symbol,
    void** function,
    int version,
    unsigned long long flags,
    int* status) {
  (void)symbol, (void)version, (void)flags;
  ++tern_driver_calls;
  *function = 0;
  if (status) *status = 1;
  return not_found;
}

int cuGetProcAddress(
    const char* symbol,
    void** function,
    int version,
    unsigned long long flags) {
  return cuGetProcAddress_v2(symbol, function, version, flags, 0);
}

int cuDriverGetVersion(int* version) {
  ++tern_driver_calls;
  *version = 13000;
  return 0;
}

int cuInit(unsigned flags) {
  (void)flags;
  ++tern_driver_calls;
  return no_device;
}
