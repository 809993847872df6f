// Bandwidth of nbi gets from the peer, completed by one quiet a sample.
#include "perftest/host/bandwidth.h"

int main(int argc, char** argv) {
  return perftest::run(argc, argv, "get_bw", perftest::Figure::kBandwidth, "memcpy from a plain shared mapping", {},
                       [](perftest::Bench& bench) { return perftest::measure_bandwidth<false>(bench, "get_bw"); });
}
