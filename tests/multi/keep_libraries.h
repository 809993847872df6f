// For programs that use MPI, which unloads its plug-ins before the process ends. The suppressions of tests/lsan.supp
// and tests/tsan.supp name libraries and need them to stay, so under these sanitizers they do. Include it once.
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
/// Takes the place of the C library's: unloads nothing.
extern "C" [[gnu::visibility("default"), gnu::used]] int dlclose(void*) { return 0; }
#endif

#if defined(__SANITIZE_ADDRESS__)
/// Libraries without frame pointers are walked by their tables, so that leaks show where they come from.
extern "C" [[gnu::visibility("default"), gnu::used]] const char* __asan_default_options() {
  return "fast_unwind_on_malloc=0";
}
#endif
