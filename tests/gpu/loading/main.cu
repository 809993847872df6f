// The ways in which kernels come into a process: units of the program, of shared libraries, of a library that is opened
// and closed while it runs, and modules loaded by the driver. Each must have the state of the heap, and have it again
// when the heap has grown. usage: main FOLDER (with liblate.so, module.cubin, module.ptx and module.cu); options of
// NVRTC in the environment's LOADING_NVRTC_OPTIONS, one a line. Two PEs.
#define UNIT program_one
#include "unit.cuh"

#include <cuda.h>
#include <dlfcn.h>
#ifdef WITH_NVRTC
#include <nvrtc.h>
#endif

#include <fstream>
#include <functional>
#include <sstream>

#include "tests/gpu/gpu.cuh"

extern "C" {
int program_two(int* box, uint64_t* signal, uint64_t round, int* wrong);
int library_one(int* box, uint64_t* signal, uint64_t round, int* wrong);
int library_two(int* box, uint64_t* signal, uint64_t round, int* wrong);
int library_three(int* box, uint64_t* signal, uint64_t round, int* wrong);
}

namespace {

using gpu::must;
using gpu::that;
using Run = int (*)(int* box, uint64_t* signal, uint64_t round, int* wrong);

std::string folder;
int* box = nullptr;
uint64_t* word = nullptr;
int* wrong = nullptr;
uint64_t rounds = 0;

void check(const std::string& what, const std::function<int()>& run) {
  ++rounds;
  heddle_clear_error();
  const int code = run();
  that(code == 0, what + ": error " + std::to_string(code));
  const int count = gpu::fetch(wrong, 1)[0];
  that(count == 0, what + ": " + (count >= 1000 ? "does not know new memory" : std::to_string(count) + " wrong"));
  gpu::give(wrong, std::vector<int>{0});
  nvshmem_barrier_all();
}
void check(const std::string& what, Run run) {
  check(what, [&] { return run(box, word, rounds, wrong); });
}

void check_linked(const std::string& when) {
  check("first unit of the program " + when, program_one);
  check("second unit of the program " + when, program_two);
  check("first library " + when, library_one);
  check("second library " + when, library_two);
  check("second unit of the second library " + when, library_three);
}

/// Takes a new chunk, and lets the kernels use its end. The former block stays, so that the heap does not shrink.
std::vector<void*> blocks;
void grow() {
  constexpr size_t kBytes = size_t{5} << 20;  // more than a chunk of 4 MiB
  char* const block = static_cast<char*>(nvshmem_malloc(kBytes));
  that(block != nullptr, "the heap grows");
  if (block == nullptr) return;
  blocks.push_back(block);
  box = reinterpret_cast<int*>(block + kBytes - 1024);
}

// ---- a library that comes and goes

struct Late {
  void* handle = nullptr;
  Run run = nullptr, other = nullptr;
};
Late open_late() {
  Late late;
  late.handle = dlopen((folder + "/liblate.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  if (late.handle == nullptr) {
    std::fprintf(stderr, "FAILED: %s\n", dlerror());
    std::_Exit(1);
  }
  late.run = reinterpret_cast<Run>(dlsym(late.handle, "late_one"));
  late.other = reinterpret_cast<Run>(dlsym(late.handle, "late_two"));
  return late;
}
void close_late(const Late& late) {
  dlclose(late.handle);
  // Nothing in the headers may keep it: kernels that are gone must not be given states.
  that(dlopen((folder + "/liblate.so").c_str(), RTLD_NOW | RTLD_NOLOAD) == nullptr,
       "the library goes when it is closed");
}

void check_late() {
  for (int round = 0; round < 3; ++round) {
    const std::string when = "of a library opened late, round " + std::to_string(round);
    Late late = open_late();
    check("first unit " + when, late.run);
    check("second unit " + when, late.other);
    grow();
    check("first unit after growth " + when, late.run);
    check("second unit after growth " + when, late.other);
    close_late(late);
    grow();
    check_linked("after the close of a library");
  }
}

// ---- modules

std::string contents(const std::string& name) {
  std::ifstream file(folder + "/" + name, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  that(!text.str().empty(), name + " is there");
  return text.str();
}

/// A function of the driver, without a link to it.
template <class Function>
Function driver(const char* name) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
  must(cudaGetDriverEntryPointByVersion(name, &entry, 12000, cudaEnableDefault, &found), name);
  return reinterpret_cast<Function>(entry);
}
#define DRIVER(NAME) driver<decltype(&NAME)>(#NAME)

int launch(CUfunction function) {
  void* arguments[] = {&box, &word, &rounds, &wrong};
  const CUresult result = DRIVER(cuLaunchKernel)(function, 1, 1, 1, 64, 1, 1, 0, nullptr, arguments, nullptr);
  const cudaError_t ended = cudaDeviceSynchronize();
  return result != CUDA_SUCCESS ? static_cast<int>(result) : static_cast<int>(ended);
}

void check_module(const std::string& what, const std::string& image) {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  that(DRIVER(cuModuleLoadData)(&module, image.c_str()) == CUDA_SUCCESS, what + ": cuModuleLoadData");
  that(DRIVER(cuModuleGetFunction)(&function, module, "module_kernel") == CUDA_SUCCESS, what + ": cuModuleGetFunction");
  that(nvshmemx_cumodule_init(module) == 0, what + ": nvshmemx_cumodule_init");
  check(what, [&] { return launch(function); });
  grow();
  check(what + " after growth", [&] { return launch(function); });
  that(nvshmemx_cumodule_init(module) == 0, what + ": nvshmemx_cumodule_init again");
  check(what + " after a second init", [&] { return launch(function); });
  that(nvshmemx_cumodule_finalize(module) == 0, what + ": nvshmemx_cumodule_finalize");
  that(nvshmemx_cumodule_finalize(module) == NVSHMEMX_ERROR_INVALID_VALUE, what + ": finalized twice");
  that(DRIVER(cuModuleUnload)(module) == CUDA_SUCCESS, what + ": cuModuleUnload");
  grow();
  check_linked("after " + what + " is gone");
}

void check_library(const std::string& what, const std::string& image) {
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  that(DRIVER(cuLibraryLoadData)(&library, image.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0) == CUDA_SUCCESS,
       what + ": cuLibraryLoadData");
  that(DRIVER(cuLibraryGetKernel)(&kernel, library, "module_kernel") == CUDA_SUCCESS, what + ": cuLibraryGetKernel");
  that(nvshmemx_culibrary_init(library) == 0, what + ": nvshmemx_culibrary_init");
  const auto run = [&] { return launch(reinterpret_cast<CUfunction>(kernel)); };
  check(what, run);
  grow();
  check(what + " after growth", run);
  that(nvshmemx_culibrary_finalize(library) == 0, what + ": nvshmemx_culibrary_finalize");
  that(DRIVER(cuLibraryUnload)(library) == CUDA_SUCCESS, what + ": cuLibraryUnload");
  grow();
  check_linked("after " + what + " is gone");
}

void check_foreign_module() {
  const std::string image = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry nothing() { ret; }\n";
  CUmodule module = nullptr;
  that(DRIVER(cuModuleLoadData)(&module, image.c_str()) == CUDA_SUCCESS, "a module without state");
  that(nvshmemx_cumodule_init(module) == NVSHMEMX_ERROR_INVALID_VALUE, "a module without state is refused");
  that(std::string(heddle_last_error()).find("HEDDLE_MODULE") != std::string::npos, "with the remedy");
  that(DRIVER(cuModuleUnload)(module) == CUDA_SUCCESS, "cuModuleUnload");
}

#ifdef WITH_NVRTC
std::string compiled_now() {
  const std::string source = contents("module.cu");
  std::vector<std::string> lines;
  const char* const given = std::getenv("LOADING_NVRTC_OPTIONS");
  std::istringstream options(given == nullptr ? "" : given);
  for (std::string line; std::getline(options, line);) lines.push_back(line);
  std::vector<const char*> list;
  for (const std::string& line : lines) list.push_back(line.c_str());
  nvrtcProgram program = nullptr;
  that(nvrtcCreateProgram(&program, source.c_str(), "module.cu", 0, nullptr, nullptr) == NVRTC_SUCCESS, "NVRTC");
  const nvrtcResult result = nvrtcCompileProgram(program, static_cast<int>(list.size()), list.data());
  size_t bytes = 0;
  nvrtcGetProgramLogSize(program, &bytes);
  std::string log(bytes, '\0');
  nvrtcGetProgramLog(program, log.data());
  that(result == NVRTC_SUCCESS, "NVRTC compiles: " + log);
  nvrtcGetCUBINSize(program, &bytes);
  std::string cubin(bytes, '\0');
  nvrtcGetCUBIN(program, cubin.data());
  nvrtcDestroyProgram(&program);
  return cubin;
}
#endif

}  // namespace

int main(int argc, char** argv) {
  folder = argc > 1 ? argv[1] : ".";
  close_late(open_late());  // before there is a world, and where there is no GPU
  if (gpu::failed != 0) return 1;
#ifdef WITH_NVRTC
  const std::string fresh = compiled_now();
  if (gpu::failed != 0) return 1;
#endif
  gpu::start();
  box = gpu::allocate<int>(192);
  blocks.push_back(box);
  word = gpu::allocate<uint64_t>(1);
  wrong = gpu::on_gpu(std::vector<int>{0});
  nvshmem_barrier_all();
  check_linked("after init");
  grow();
  check_linked("after growth");
  check_late();
  check_module("a module from a cubin", contents("module.cubin"));
  check_module("a module from PTX", contents("module.ptx"));
  check_library("a library from a cubin", contents("module.cubin"));
  check_library("a library from PTX", contents("module.ptx"));
  check_foreign_module();
#ifdef WITH_NVRTC
  check_module("a module from NVRTC", fresh);
  check_library("a library from NVRTC", fresh);
#else
  if (gpu::me == 0) std::printf("NVRTC is not here: not tested\n");
#endif
  must(cudaFree(wrong), "cudaFree");
  nvshmem_free(word);
  for (void* const block : blocks) nvshmem_free(block);
  return gpu::finish("loading");
}
