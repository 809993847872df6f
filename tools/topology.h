// What hwloc says about this machine, for heddle-info.
#pragma once

#include <string>
#include <vector>

namespace heddle {

struct PciGpu {
  std::string bus_id;  ///< PCI domain:bus:device.function
  std::string name;    ///< of the PCI data base, or vendor and device numbers
  int numa_node = -1;  ///< nearest, -1 unknown
};

struct Topology {
  bool known = false;  ///< false: built without hwloc, or hwloc failed; the rest is then empty
  size_t packages = 0, cores = 0, threads = 0, numa_nodes = 0;
  std::vector<PciGpu> gpus;  ///< NVIDIA display and 3D controllers on the PCI bus, whether a driver is loaded or not
};

/// Reads this machine's topology; takes some 10 ms.
Topology read_topology();

}  // namespace heddle
