// Bandwidth of nbi puts to the peer, completed by one quiet a sample.
#include "perftest/host/bandwidth.h"

int main(int argc, char** argv) {
  return perftest::run(argc, argv, "put_bw", perftest::Figure::kBandwidth, "memcpy to a plain shared mapping", {},
                       [](perftest::Bench& bench) { return perftest::measure_bandwidth<true>(bench, "put_bw"); });
}
