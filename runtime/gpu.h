// The GPU of this PE: which one, its context, and what it can do with the GPUs of other PEs.
//
// The context is the device's primary one, which CUDA runtimes in the process share. It is made current only for the
// library's own calls (ContextScope): what the program has made current stays so.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/cuda_driver.h"
#include "runtime/fabric/fabric.h"
#include "runtime/status.h"

namespace heddle {

/// Which GPU to use and why, as a sentence for the log.
struct GpuChoice {
  int ordinal = 0;
  std::string reason;
};

/// The rule: the one that was asked for; else that of the program's current context; else GPUs are dealt out to the PEs
/// of a node in turn. `asked` and `current` are ordinals or -1; kInvalidValue when `asked` does not exist.
Status choose_gpu(int asked, int current, int local_rank, int visible, GpuChoice* choice);

/// 16 bytes as "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", the way nvidia-smi writes them.
std::string uuid_text(const unsigned char (&uuid)[16], bool is_mig);

class Gpu {
 public:
  /// Chooses a GPU and retains its primary context, which takes most of a second when the program has not made it.
  /// kNotSupported when there is none or check_gpu refuses it.
  static Status open(const FabricRequest& request, std::shared_ptr<Gpu>* gpu);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  const cuda::Driver& driver() const { return driver_; }
  CUdevice device() const { return device_; }
  CUcontext context() const { return context_; }
  const std::string& name() const { return name_; }  ///< e.g. "GPU 0 (NVIDIA H200)"

  /// Writes GPU and capability into `identity`.
  void describe(PeerIdentity* identity) const;
  /// Whether this GPU can map the memory of the GPU of `peer`, which runs on this host.
  Reach reach(const PeerIdentity& peer) const;
  /// Whether atomics on that memory are the memory's own.
  bool has_native_atomics(const PeerIdentity& peer) const;
  /// The visible GPUs that none of `peers` has, as "GPU 1 (GPU-...)".
  std::vector<std::string> unused_by(const std::vector<PeerIdentity>& peers) const;
  /// Whether CUDA MPS serves the contexts of this process here.
  bool has_mps() const { return has_mps_; }

  int attribute(CUdevice_attribute attribute) const;  ///< 0 when the driver does not know it
  /// Whether streams can write words of 4 and 8 bytes (cuStreamWriteValue).
  bool writes_words() const { return writes_words_; }

 private:
  struct Visible {
    CUdevice device = 0;
    unsigned char uuid[16] = {};
  };

  explicit Gpu(const cuda::Driver& driver) : driver_(driver) {}
  Status read(int visible);
  const Visible* find(const PeerIdentity& peer) const;

  const cuda::Driver& driver_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  std::string name_;
  unsigned char uuid_[16] = {};
  bool is_mig_ = false;
  bool writes_words_ = false;
  bool has_mps_ = false;
  int capability_ = 0;
  std::vector<Visible> visible_;
};

/// Whether the library's `peer` fabric can use the device: nothing but attributes is asked.
Status check_gpu(const cuda::Driver& driver, CUdevice device);
/// Whether it has virtual memory management with file descriptors; kNotSupported names what is missing.
Status check_vmm(const cuda::Driver& driver, CUdevice device);

/// Whether work on `stream` is work of `gpu`; for the default streams (nullptr, legacy, per thread) the calling
/// thread's current context decides, and without one the GPU is meant. kInvalidValue that names both GPUs when it is
/// not.
Status check_stream(const Gpu& gpu, CUstream stream);
/// The same for the calling thread's current context.
inline Status check_current(const Gpu& gpu) { return check_stream(gpu, nullptr); }

/// While it lives, the GPU's primary context is the calling thread's current one.
class ContextScope {
 public:
  explicit ContextScope(const Gpu& gpu);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  const cuda::Driver& driver_;
  bool pushed_ = false;
};

/// While it lives, calls that a stream capture of another thread would forbid are allowed in this one.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const Gpu& gpu) : driver_(gpu.driver()) { exchange(); }
  ~RelaxedCapture() { exchange(); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  void exchange() { (void)driver_.ThreadExchangeStreamCaptureMode(&mode_); }
  const cuda::Driver& driver_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace heddle
