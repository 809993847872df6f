# Install rules, CMake packages and pkg-config file.
