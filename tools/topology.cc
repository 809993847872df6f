#include "tools/topology.h"

#include "runtime/status.h"

#if HEDDLE_HAVE_HWLOC
#include <hwloc.h>
#endif

namespace heddle {

#if HEDDLE_HAVE_HWLOC
namespace {

constexpr unsigned kNvidia = 0x10de;
constexpr unsigned kDisplayClass = 0x03;  // upper byte of the PCI class: VGA and 3D controllers

// The NUMA node whose processors are nearest to an I/O object, or -1.
int numa_node_of(hwloc_topology_t topology, hwloc_obj_t device) {
  const hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(topology, device);
  if (near == nullptr || near->nodeset == nullptr || hwloc_bitmap_weight(near->nodeset) != 1) return -1;
  return hwloc_bitmap_first(near->nodeset);
}

Topology describe(hwloc_topology_t topology) {
  Topology found;
  const auto count = [&](hwloc_obj_type_t type) {
    const int objects = hwloc_get_nbobjs_by_type(topology, type);
    return objects < 0 ? size_t{0} : static_cast<size_t>(objects);
  };
  found.known = true;
  found.packages = count(HWLOC_OBJ_PACKAGE);
  found.cores = count(HWLOC_OBJ_CORE);
  found.threads = count(HWLOC_OBJ_PU);
  found.numa_nodes = count(HWLOC_OBJ_NUMANODE);
  for (hwloc_obj_t device = hwloc_get_next_pcidev(topology, nullptr); device != nullptr;
       device = hwloc_get_next_pcidev(topology, device)) {
    const auto& pci = device->attr->pcidev;
    if (pci.vendor_id != kNvidia || pci.class_id >> 8 != kDisplayClass) continue;
    const std::string numbers = format("%04x:%04x", pci.vendor_id, pci.device_id);
    found.gpus.push_back({format("%04x:%02x:%02x.%x", pci.domain, pci.bus, pci.dev, pci.func),
                          device->name != nullptr ? std::string(device->name) : numbers,
                          numa_node_of(topology, device)});
  }
  return found;
}

}  // namespace

Topology read_topology() {
  hwloc_topology_t topology;
  if (hwloc_topology_init(&topology) != 0) return {};
  hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  Topology found;
  if (hwloc_topology_load(topology) == 0) found = describe(topology);
  hwloc_topology_destroy(topology);
  return found;
}
#else
Topology read_topology() { return {}; }
#endif

}  // namespace heddle
